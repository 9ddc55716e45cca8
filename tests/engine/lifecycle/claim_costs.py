"""What a claim costs: a queue with very many executions, and the buffers that a claim touches."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import msgspec

from flowfabric.db.rows import Connection, positional
from flowfabric.engine.lifecycle.claim import CLAIM
from tests.explained import buffers

MOST = 50
"""Buffers that one claim of one execution may touch, everything included."""

ROUTE = """
INSERT INTO ff.route (route_id, namespace, lane_id, execution_kind, required_capabilities)
SELECT ff.route_id('default', 'default', kind, caps), 'default', 'default', kind, caps
  FROM (VALUES ($1::text, $2::text[])) AS r (kind, caps)
    ON CONFLICT DO NOTHING
"""
# Rows as the operations leave them (ids ascend, partitions are scattered), in two statements.
BODIES = """
INSERT INTO ff.exec_body (partition_key, execution_id, created_at_ms, payload)
SELECT n * 7919 % 256, ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
       1700000000000 + n, '\\x7b7d'
  FROM generate_series($1::bigint + 1, $1 + $2::bigint) AS n
"""
CORES = """
INSERT INTO ff.exec_core (
       partition_key, execution_id, route_id, created_at_ms, last_mutation_at_ms, priority,
       lifecycle_phase, eligibility_state, blocking_reason, terminal_outcome, attempt_state,
       delay_until_ms, terminal_at_ms, total_attempt_count)
SELECT n * 7919 % 256, ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
       r.route_id, 1700000000000 + n, 1700000000000 + n, $5::integer,
       CASE $6 WHEN 'ended' THEN 'terminal' ELSE 'runnable' END,
       CASE $6 WHEN 'ended' THEN 'not_applicable' WHEN 'delayed' THEN 'not_eligible_until_time'
               ELSE 'eligible_now' END,
       CASE $6 WHEN 'ended' THEN 'none' WHEN 'delayed' THEN 'waiting_for_delay'
               ELSE 'waiting_for_worker' END,
       CASE $6 WHEN 'ended' THEN 'success' ELSE 'none' END,
       CASE $6 WHEN 'ended' THEN 'attempt_terminal' ELSE 'pending_first_attempt' END,
       CASE $6 WHEN 'delayed' THEN 4000000000000 + n END,
       CASE $6 WHEN 'ended' THEN 1700000000000 + n END,
       CASE $6 WHEN 'ended' THEN 1 ELSE 0 END
  FROM generate_series($1::bigint + 1, $1 + $2::bigint) AS n,
       (SELECT ff.route_id('default', 'default', $3::text, $4::text[]) AS route_id) AS r
"""
READY = """
INSERT INTO ff.ready (route_id, created_at_ms, priority, partition_key, execution_id)
SELECT route_id, created_at_ms, priority, partition_key, execution_id FROM ff.exec_core
 WHERE created_at_ms BETWEEN 1700000000001 + $1::bigint AND 1700000000000 + $1 + $2::bigint
   AND eligibility_state = 'eligible_now'
"""
# Indexes are built faster than they grow; checks are for rows that operations write.
BURDENS = """
SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) AS lift,
       format('ALTER TABLE %s ADD CONSTRAINT %I %s%s', conrelid::regclass, conname,
              pg_get_constraintdef(oid), CASE contype WHEN 'c' THEN ' NOT VALID' END) AS restore
  FROM pg_constraint
 WHERE conrelid IN ('ff.exec_core'::regclass, 'ff.exec_body'::regclass) AND contype IN ('c', 'p')
UNION ALL
SELECT format('DROP INDEX %s', indexrelid::regclass), pg_get_indexdef(indexrelid)
  FROM pg_index
 WHERE indrelid IN ('ff.exec_core'::regclass, 'ff.exec_body'::regclass, 'ff.ready'::regclass)
   AND NOT indisprimary
"""


@asynccontextmanager
async def unburdened(db: Connection) -> AsyncGenerator[None]:
    """No index and no check while very many rows are written; all of them afterwards."""
    burdens = await db.fetch(BURDENS)
    for burden in burdens:
        await db.execute(burden["lift"])
    yield
    await db.execute("SET maintenance_work_mem = '256MB'")
    for burden in burdens:
        await db.execute(burden["restore"])


class Queue:
    """A database with many executions; more are added, none is ever taken away."""

    def __init__(self, db: Connection) -> None:
        self.db, self._count = db, 0

    async def add(
        self,
        count: int,
        *,
        kind: str = "job",
        requires: tuple[str, ...] = (),
        priority: int = 0,
        state: str = "queued",
        analyze: bool = True,
    ) -> None:
        await self.db.execute(ROUTE, kind, list(requires))
        if count > 100_000:
            async with unburdened(self.db):
                await self._insert(count, kind, requires, priority, state)
        else:
            await self._insert(count, kind, requires, priority, state)
        if analyze:
            await self.db.execute("VACUUM ANALYZE ff.exec_core, ff.exec_body, ff.ready, ff.route")

    async def _insert(self, count: int, *facts: Any) -> None:
        kind, requires, priority, state = facts
        await self.db.execute(BODIES, self._count, count)
        await self.db.execute(CORES, self._count, count, kind, list(requires), priority, state)
        await self.db.execute(READY, self._count, count)
        self._count += count


LOCKED = """
SELECT FROM ff.ready
 ORDER BY priority DESC, created_at_ms, execution_id LIMIT $1 FOR UPDATE
"""
"""The best, as somebody else who claims them has them."""


TEXT, NAMES = positional(CLAIM)
VALUES = {
    "lanes": "ARRAY['default']",
    "namespace": "'default'",
    "kinds": "ARRAY['job']",
    "capabilities": "ARRAY['cpu']",
    "lease_id": f"'{uuid4()}'",
    "worker_id": "'w'",
    "worker_instance_id": "'w-1'",
    "ttl_ms": "30000",
    "is_alone": "true",
}


async def run(db: Connection, limit: int = 1) -> tuple[int, int]:
    """(claimed, buffers) of the prepared claim, undone again."""
    values = VALUES | {"limit": str(limit)}
    undone = db.transaction()
    await undone.start()
    try:
        explained = await db.fetchval(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE one_claim("
            + ", ".join(values[name] for name in NAMES)
            + ")"
        )
    finally:
        await undone.rollback()
    [whole] = msgspec.json.decode(explained)
    return round(whole["Plan"]["Actual Rows"]), buffers(whole["Plan"])


async def cost(db: Connection, limit: int = 1) -> dict[str, int]:
    """Buffers once the connection is warm, however the server decides to plan."""
    costs = {}
    for mode in ("force_custom_plan", "auto", "force_generic_plan"):
        await db.execute(f"SET plan_cache_mode = {mode}")
        await db.execute(f"PREPARE one_claim AS {TEXT}")
        runs = [await run(db, limit) for _ in range(7)]
        assert [claimed for claimed, _ in runs] == [limit] * 7
        costs[mode] = runs[-1][1]
        await db.execute("DEALLOCATE one_claim")
    return costs
