"""What a claim costs does not grow with what is queued, delayed, foreign or finished."""

import asyncio
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection, positional
from flowfabric.engine.lifecycle.claim import CLAIM, claim
from flowfabric.testing import TestServer
from tests import given

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("claim cost")]

MOST = 50
"""Buffers that one claim of one execution may touch, everything included."""

ROUTE = """
INSERT INTO ff.route (route_id, namespace, lane_id, execution_kind, required_capabilities)
SELECT ff.route_id('default', 'default', kind, caps), 'default', 'default', kind, caps
  FROM (VALUES ($1::text, $2::text[])) AS r (kind, caps)
    ON CONFLICT DO NOTHING
"""
# Rows as the operations leave them, without going through a million of them.
SEED = """
WITH made AS MATERIALIZED (
    SELECT gen_random_uuid() AS execution_id, n FROM generate_series(1, $1::integer) AS n
), bodies AS (
    INSERT INTO ff.exec_body (partition_key, execution_id, created_at_ms, payload)
    SELECT n % 256, execution_id, 1700000000000 + n, '\\x7b7d' FROM made
)
INSERT INTO ff.exec_core (
       partition_key, execution_id, route_id, created_at_ms, last_mutation_at_ms, priority,
       lifecycle_phase, eligibility_state, blocking_reason, terminal_outcome, attempt_state,
       delay_until_ms, terminal_at_ms, total_attempt_count)
SELECT n % 256, execution_id, ff.route_id('default', 'default', $2, $3), 1700000000000 + n,
       1700000000000 + n, $4,
       CASE $5 WHEN 'ended' THEN 'terminal' ELSE 'runnable' END,
       CASE $5 WHEN 'ended' THEN 'not_applicable' WHEN 'delayed' THEN 'not_eligible_until_time'
               ELSE 'eligible_now' END,
       CASE $5 WHEN 'ended' THEN 'none' WHEN 'delayed' THEN 'waiting_for_delay'
               ELSE 'waiting_for_worker' END,
       CASE $5 WHEN 'ended' THEN 'success' ELSE 'none' END,
       CASE $5 WHEN 'ended' THEN 'attempt_terminal' ELSE 'pending_first_attempt' END,
       CASE $5 WHEN 'delayed' THEN 4000000000000 + n END,
       CASE $5 WHEN 'ended' THEN 1700000000000 + n END,
       CASE $5 WHEN 'ended' THEN 1 ELSE 0 END
  FROM made
"""


class Queue(msgspec.Struct, frozen=True):
    """A database with many executions; more can be added, none is ever taken away."""

    dsn: str

    async def conn(self) -> asyncpg.Connection:
        return await connect(DatabaseConfig(dsn=self.dsn, statement_timeout=120), role="tests")


@pytest.fixture(scope="module")
def queue(ff_server: TestServer) -> Generator[Queue]:
    with ThreadPoolExecutor(1) as elsewhere:
        dsn = elsewhere.submit(asyncio.run, ff_server.create()).result()
        try:
            yield Queue(dsn)
        finally:
            elsewhere.submit(asyncio.run, ff_server.drop(dsn)).result()


async def seed(
    db: Connection,
    count: int,
    *,
    kind: str = "job",
    capabilities: tuple[str, ...] = (),
    priority: int = 0,
    state: str = "queued",
) -> None:
    await db.execute(ROUTE, kind, list(capabilities))
    await db.execute(SEED, count, kind, list(capabilities), priority, state)
    await db.execute("VACUUM ANALYZE ff.exec_core, ff.exec_body, ff.route")


def buffers(plan: dict[str, Any]) -> int:
    """Buffers of the whole statement: the top node, and what ran only after it."""
    used: set[str] = set()
    late: list[dict[str, Any]] = []

    def walk(node: dict[str, Any]) -> None:
        if node["Node Type"] == "CTE Scan":
            used.add(node["CTE Name"])
        if node.get("Parent Relationship") == "InitPlan":
            late.append(node)
        for child in node.get("Plans", ()):
            walk(child)

    walk(plan)
    unread = [
        node for node in late if node.get("Subplan Name", "").removeprefix("CTE ") not in used
    ]
    return sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in [plan, *unread])


async def cost(db: Connection, *, generic: bool) -> int:
    """Buffers of one claim of one execution, undone again."""
    text, names = positional(CLAIM)
    values = {
        "lanes": "ARRAY['default']",
        "namespace": "'default'",
        "kinds": "ARRAY['job']",
        "capabilities": "ARRAY['cpu']",
        "limit": "1",
        "lease_id": f"'{uuid4()}'",
        "worker_id": "'w'",
        "worker_instance_id": "'w-1'",
        "ttl_ms": "30000",
    }
    mode = "force_generic_plan" if generic else "force_custom_plan"
    undone = db.transaction()
    await undone.start()
    try:
        await db.execute(f"SET LOCAL plan_cache_mode = {mode}")
        await db.execute(f"PREPARE one_claim AS {text}")
        [explained] = await db.fetch(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE one_claim("
            + ", ".join(values[name] for name in names)
            + ")"
        )
    finally:
        await undone.rollback()
        await db.execute("DEALLOCATE ALL")
    [plan] = msgspec.json.decode(explained[0])
    assert plan["Plan"]["Actual Rows"] == 1, "nothing was claimed"
    return buffers(plan["Plan"])


async def check(db: Connection) -> None:
    costs = {
        (plan, run): await cost(db, generic=plan == "generic")
        for plan in ("custom", "generic")
        for run in range(2)
    }
    assert max(costs.values()) <= MOST, costs


async def test_a_claim_is_cheap_with_a_thousand_queued(queue: Queue) -> None:
    db = await queue.conn()
    try:
        await seed(db, 1000)
        await check(db)
    finally:
        await db.close()


async def test_a_claim_is_cheap_behind_100_000_that_another_worker_must_run(queue: Queue) -> None:
    db = await queue.conn()
    try:
        await seed(db, 100_000, kind="foreign", priority=9000)
        await seed(db, 100_000, capabilities=("gpu",), priority=9000)
        await check(db)
    finally:
        await db.close()


async def test_a_claim_is_cheap_beside_100_000_delayed_and_100_000_finished(queue: Queue) -> None:
    db = await queue.conn()
    try:
        await seed(db, 100_000, priority=9000, state="delayed")
        await seed(db, 100_000, priority=9000, state="ended")
        await check(db)
    finally:
        await db.close()


async def test_a_claim_is_cheap_with_100_000_and_with_a_million_queued(queue: Queue) -> None:
    db = await queue.conn()
    try:
        await seed(db, 99_000)
        await check(db)
        await seed(db, 900_000)
        await check(db)
    finally:
        await db.close()


async def test_the_real_claim_finds_its_way_through_all_of_it(queue: Queue) -> None:
    db = await queue.conn()
    try:
        async with asyncio.timeout(10):
            tasks = await claim(db, given.WORKER, ttl=30, limit=100)
        assert len(tasks) == 100
    finally:
        await db.close()
