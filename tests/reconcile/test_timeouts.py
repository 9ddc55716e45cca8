"""Timeouts of suspensions are applied when they pass, while a process sweeps."""

import asyncio
import random
import statistics

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.instants import instant
from flowfabric.reconcile.loop import reconcile
from tests import given
from tests.engine.suspensions import parked

LATE = """
SELECT closed_at_ms - ($2::bigint[])[array_position($1::uuid[], execution_id)] AS late
  FROM ff.suspension_current WHERE closed_at_ms IS NOT NULL
"""


@pytest.mark.timing
@pytest.mark.timeout(40)
async def test_a_timeout_is_applied_within_a_tenth_of_a_second(
    db: Connection, ff_engine: Engine
) -> None:
    chance = random.Random(1)
    leases = [await given.claimed(db) for _ in range(60)]  # before any of them is resumed
    sweeping = asyncio.create_task(reconcile(ff_engine.pool, "w-1", ff_engine.listener))
    due: dict[object, int] = {}
    for lease in leases:
        now = await db.fetchval("SELECT ff.now_ms()")
        due[lease.execution_id.uuid] = now + chance.randint(1500, 4000)
        until = instant(due[lease.execution_id.uuid])
        await parked.suspended(db, parked.handler(lease, "go", timeout_at=until))

    late: list[int] = []
    async with asyncio.timeout(20):
        while len(late) < len(due):
            await asyncio.sleep(0.5)
            rows = await db.fetch(LATE, list(due), list(due.values()))
            late = [row["late"] for row in rows]
    sweeping.cancel()
    await asyncio.wait([sweeping])

    assert statistics.median(late) <= 100, sorted(late)
    assert min(late) >= 0
