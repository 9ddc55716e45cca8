"""An execution that kills its worker ends after as many tries as its task allows."""

import pytest

from flowfabric import Client, ExecutionFailed
from flowfabric.db.rows import Connection
from flowfabric.states import PublicState
from tests import given
from tests.stories.processes import WorkerProcess, workers
from tests.stories.shop import nap, poison
from tests.worker.facts import eventually, told_twice

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

TTL = 1.0


async def test_a_poisonous_execution_ends_after_three_claims_and_its_neighbours_finish(
    ff_dsn: str, client: Client, db: Connection
) -> None:
    neighbours = await client.submit_many([nap.call(0.02) for _ in range(100)])
    bad = await client.submit(poison.call(), priority=1)
    deaths = 0

    async with workers(ff_dsn, "worker-0", lease_ttl=TTL, concurrency=4) as running:

        async def tended() -> bool:
            """Restart the worker whenever it died; has everything ended?"""
            nonlocal deaths
            if running[-1].ended:
                deaths += 1
                assert await running[-1].exit_code() == 9
                running.append(
                    await WorkerProcess.start(
                        ff_dsn, f"worker-{deaths}", lease_ttl=TTL, concurrency=4
                    )
                )
            return not await db.fetchval(
                "SELECT count(*) FROM ff.exec_core WHERE lifecycle_phase <> 'terminal'"
            )

        await eventually(tended, within=60)

    with pytest.raises(ExecutionFailed) as failed:
        await bad.result(timeout=5)
    assert failed.value.reason == "max_reclaims_exceeded"
    assert deaths == 3
    events = [kind for kind, _ in await given.lease_events(db, bad.execution_id)]
    assert events.count("acquired") == 3
    states = [await handle.state() for handle in neighbours]
    assert states == [PublicState.COMPLETED] * 100
    assert await told_twice(db) == 0
