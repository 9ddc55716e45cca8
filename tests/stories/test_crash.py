"""A worker is killed in the middle of its work, and nothing is lost or done twice."""

import time

import pytest

from flowfabric import Client
from flowfabric.db.rows import Connection
from tests.db.facts import server_is_settled
from tests.stories.processes import WorkerProcess, all_completed, serving, workers
from tests.stories.shop import nap
from tests.worker.facts import count, eventually, told_twice

pytestmark = [pytest.mark.slow, pytest.mark.timing, pytest.mark.timeout(60)]

EXECUTIONS, SECONDS, SLOTS, TTL = 1000, 0.05, 16, 2.0

HAS_SWEPT = """
SELECT EXISTS (SELECT FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = $1
                  AND query LIKE '%-- reconcile.find_due%')
"""


async def test_the_work_of_a_killed_worker_is_finished_by_the_other_in_time(
    ff_dsn: str, client: Client, db: Connection
) -> None:
    async with workers(ff_dsn, "first", "second", concurrency=SLOTS, lease_ttl=TTL) as (doomed, _):
        await serving(db, 2)
        began = time.monotonic()
        await client.submit_many([nap.call(SECONDS) for _ in range(EXECUTIONS)])

        async def a_third_is_done() -> bool:
            return await count(db, "completed") > EXECUTIONS / 3

        await eventually(a_third_is_done)
        a_third_took = time.monotonic() - began
        held = await db.fetchval(
            "SELECT count(*) FROM ff.execution WHERE worker_instance_id = $1", doomed.instance
        )
        doomed.kill()
        killed = time.monotonic()
        rest_alone = 2 * 2 * a_third_took  # two thirds, with half of the hands
        await eventually(lambda: all_completed(db), within=rest_alone + TTL + 3 + 1)
        took = time.monotonic() - killed

    assert took <= rest_alone + TTL + 3
    assert await told_twice(db) == 0
    assert await db.fetchval("SELECT count(*) FROM ff.completion_event") == EXECUTIONS
    reclaimed = await db.fetchval("SELECT count(*) FROM ff.execution WHERE lease_reclaim_count > 0")
    assert 0 < reclaimed <= held + SLOTS
    assert await db.fetchval("SELECT max(lease_reclaim_count) FROM ff.execution") == 1


async def test_every_orphan_is_claimed_again_long_before_its_lease_expires(
    ff_dsn: str, client: Client, db: Connection
) -> None:
    await server_is_settled(db)
    async with workers(ff_dsn, "first", concurrency=10, lease_ttl=30) as running:
        await serving(db, 1)
        await client.submit_many([nap.call(60) for _ in range(10)])

        async def all_held() -> bool:
            return await count(db, "active") == 10

        await eventually(all_held)
        running.append(await WorkerProcess.start(ff_dsn, "second", lease_ttl=30))
        await serving(db, 2)
        await eventually(lambda: db.fetchval(HAS_SWEPT, "flowfabric worker second"))
        killed_at_ms = await db.fetchval("SELECT ff.now_ms()")
        running[0].kill()

        async def all_taken_over() -> bool:
            return await count_of_claims(db, "second") == 10

        await eventually(all_taken_over, within=15)

    voided_at_ms = await last_lease_event(db, "expired", "first")
    claimed_at_ms = await last_lease_event(db, "acquired", "second")
    assert voided_at_ms - killed_at_ms <= 3000  # two looks of a sweep
    assert claimed_at_ms - killed_at_ms <= 3000


async def last_lease_event(db: Connection, event_type: str, instance: str) -> int:
    return await db.fetchval(
        "SELECT max(occurred_at_ms) FROM ff.lease_event"
        " WHERE event_type = $1 AND worker_instance_id = $2",
        event_type,
        instance,
    )


async def count_of_claims(db: Connection, instance: str) -> int:
    return await db.fetchval(
        "SELECT count(*) FROM ff.lease_event"
        " WHERE event_type = 'acquired' AND worker_instance_id = $1",
        instance,
    )
