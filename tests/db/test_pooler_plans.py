"""Behind a pooler connections lack our planner settings; statements follow indexes all the same."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.renew import renew
from tests.explained import whole_reads
from tests.proofs.crowd import analyzed, crowded

BATCH = 100
SMALL = {"lane_registry", "partition_config", "route", "waiter", "worker_registry"}
"""Tables with a row per lane, per kind or per process."""
CLAIMANT = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("default",))

MANY_WAITERS = """
INSERT INTO ff.waiter SELECT 'lane:' || n, 'w', 9223372036854775807
  FROM generate_series(1, 20000) AS n
"""


@pytest.fixture
async def behind(own_dsn: str) -> AsyncGenerator[Connection]:
    """A connection as a pooler gives it: without our settings."""
    conn = await connect(DatabaseConfig(dsn=own_dsn, pooler=True), role="tests")
    try:
        assert await conn.fetchval("SHOW enable_seqscan") == "on"
        yield conn
    finally:
        await conn.close()


async def read_whole(conn: Connection, before: dict[str, int]) -> set[str]:
    after = await whole_reads(conn)
    return {table for table, times in after.items() if times > before.get(table, 0)}


@pytest.mark.parametrize("counted", [False, True], ids=["without statistics", "with statistics"])
async def test_a_claim_a_renewal_and_a_completion_read_no_large_table_from_end_to_end(
    behind: Connection, counted: bool
) -> None:
    await crowded(behind, ended=10_000, live=500)
    if counted:
        await analyzed(behind)
    async with behind.transaction():
        before = await whole_reads(behind)

        leases = [each.lease for each in await claim(behind, CLAIMANT, ttl=30, limit=BATCH)]
        renewed = await renew(behind, leases, ttl=30)
        completed = await complete(behind, [Completion(lease) for lease in leases])

        assert await read_whole(behind, before) - SMALL == set()
    assert (len(leases), renewed) == (BATCH, [None] * BATCH)
    assert all(isinstance(each, Completed) for each in completed)


async def test_what_a_function_planned_while_tables_were_small_holds_when_they_have_grown(
    behind: Connection,
) -> None:
    submit = "SELECT ff.submit('mail', idempotency_key => $1, tags => '{\"a.b\": \"c\"}')"
    await behind.fetchval(submit, "first")
    await behind.execute("VACUUM ANALYZE")  # the planner knows that tables are small
    for number in range(10):  # more often than it takes until Postgres keeps a plan for any values
        await behind.fetchval(submit, f"small {number}")
    await crowded(behind, ended=10_000, live=500)
    await behind.execute(MANY_WAITERS)
    async with behind.transaction():
        before = await whole_reads(behind)

        await behind.fetchval(submit, "large")

        assert await read_whole(behind, before) == {"partition_config"}
