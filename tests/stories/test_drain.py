"""SIGTERM: a worker finishes what it runs, hands back the rest, and ends well."""

import time

import pytest

from flowfabric import Client
from flowfabric.db.rows import Connection
from flowfabric.states import PublicState
from tests.stories.processes import serving, workers, worst_counts
from tests.stories.shop import nap, stuck
from tests.worker.facts import count, eventually, lease_expired_events, told_twice

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.mark.timing
async def test_a_terminated_worker_drains_and_nothing_is_lost_or_counted_twice(
    ff_dsn: str, client: Client, db: Connection
) -> None:
    async with workers(ff_dsn, "first", concurrency=20) as (first,):
        await serving(db, 1)
        await client.submit_many([nap.call(0.2) for _ in range(100)])
        await eventually(lambda: count(db, "completed"))
        first.terminate()
        began = time.monotonic()
        assert await first.exit_code() == 0
        assert time.monotonic() - began < 3

    done = await count(db, "completed")
    assert 0 < done < 100
    assert (await count(db, "active"), await count(db, "waiting")) == (0, 100 - done)
    assert await db.fetchval("SELECT count(*) FROM ff.worker_registry") == 0
    async with workers(ff_dsn, "second", concurrency=50):
        await eventually(lambda: is_done(db, 100))
    assert await worst_counts(db) == (1, 0, 0)
    assert (await told_twice(db), await lease_expired_events(db)) == (0, 0)


async def is_done(db: Connection, number: int) -> bool:
    return await count(db, "completed") == number


async def test_what_outlasts_the_drain_is_handed_back_at_once(
    ff_dsn: str, client: Client, db: Connection
) -> None:
    async with workers(ff_dsn, "first", drain=0.3, lease_ttl=30) as (first,):
        handle = await client.submit(nap.call(60))
        await eventually(lambda: count(db, "active"), within=20)
        first.terminate()
        assert await first.exit_code() == 0

    snapshot = await handle.describe()
    assert snapshot.public_state is PublicState.WAITING
    assert (snapshot.lease_reclaim_count, snapshot.retry_count) == (0, 0)


@pytest.mark.timing
async def test_a_thread_that_cannot_be_stopped_delays_the_end_but_not_the_hand_back(
    ff_dsn: str, client: Client, db: Connection
) -> None:
    drain = 0.3
    async with workers(ff_dsn, "first", drain=drain) as (first,):
        handle = await client.submit(stuck.call(4))
        await eventually(lambda: count(db, "active"), within=20)
        first.terminate()

        async def handed_back() -> bool:
            return await handle.state() is PublicState.WAITING

        await eventually(handed_back, within=drain + 1)
        assert await first.exit_code() == 0

    assert (await handle.describe()).lease_reclaim_count == 0
