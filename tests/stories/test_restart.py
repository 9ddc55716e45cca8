"""Rolling restarts under load: nothing fails, is counted twice, or waits for a lease to lapse."""

import pytest

from flowfabric import Client
from flowfabric.db.rows import Connection
from tests.stories.processes import WorkerProcess, all_completed, serving, workers, worst_counts
from tests.stories.shop import nap
from tests.worker.facts import count, eventually, lease_expired_events, told_twice

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

EXECUTIONS, RESTARTS = 1200, 4


async def test_workers_are_replaced_one_by_one_while_the_work_goes_on(
    ff_dsn: str, client: Client, db: Connection
) -> None:
    settings = {"concurrency": 10, "lease_ttl": 30}
    async with workers(ff_dsn, "old-0", "old-1", **settings) as running:
        await serving(db, 2)
        await client.submit_many([nap.call(0.05) for _ in range(EXECUTIONS)])
        for number in range(RESTARTS):
            running.append(await WorkerProcess.start(ff_dsn, f"new-{number}", **settings))
            await eventually(lambda name=f"new-{number}": has_claimed(db, name), within=20)
            retiring = running[number]
            retiring.terminate()
            assert await retiring.exit_code() == 0
        await eventually(lambda: all_completed(db), within=30)

    assert await count(db, "completed") == EXECUTIONS
    assert await worst_counts(db) == (1, 0, 0)
    assert (await told_twice(db), await lease_expired_events(db)) == (0, 0)


async def has_claimed(db: Connection, instance: str) -> bool:
    return await db.fetchval(
        "SELECT EXISTS (SELECT FROM ff.lease_event WHERE worker_instance_id = $1)", instance
    )
