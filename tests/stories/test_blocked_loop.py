"""A handler that blocks the event loop does not cost the lease."""

import pytest

from flowfabric import Client, Task
from flowfabric.db.rows import Connection
from tests import given
from tests.stories.processes import serving, workers
from tests.stories.shop import block, spin
from tests.worker.facts import lease_expired_events

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

TTL = 1.0


@pytest.mark.parametrize("task", [block, spin], ids=["sleeping", "spinning"])
async def test_a_handler_that_blocks_for_three_terms_ends_on_its_first_attempt(
    ff_dsn: str, client: Client, db: Connection, task: Task[..., int]
) -> None:
    async with workers(ff_dsn, "only", lease_ttl=TTL) as (process,):
        await serving(db, 1)
        handle = await client.submit(task.call(3 * TTL))
        assert await handle.result(timeout=20) == process.pid

    snapshot = await handle.describe()
    assert (snapshot.total_attempt_count, snapshot.lease_reclaim_count) == (1, 0)
    assert await given.lease_events(db, handle.execution_id) == [
        ("acquired", None),
        ("revoked", "completed"),
    ]


async def test_what_was_claimed_behind_a_blocking_handler_keeps_its_lease_too(
    ff_dsn: str, client: Client, db: Connection
) -> None:
    async with workers(ff_dsn, "only", lease_ttl=TTL, concurrency=8):
        await serving(db, 1)
        handles = await client.submit_many([block.call(0.5) for _ in range(8)])
        for handle in handles:
            await handle.result(timeout=20)

    assert await lease_expired_events(db) == 0
    assert await db.fetchval("SELECT max(total_attempt_count) FROM ff.execution") == 1
