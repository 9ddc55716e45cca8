"""A limit that executions of several lanes and kinds share: those that nobody runs hold no room."""

from __future__ import annotations

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lanes.set_lane_state import set_lane_state
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.quotas.unblock_keys import unblock_keys
from flowfabric.testing import Clock
from tests import given
from tests.engine.quotas import limited

JOBS = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("default", "bulk"), kinds=("job",))


async def run_all(db: Connection, worker: Claimant, most: int) -> list[object]:
    """What a worker runs, one after the other, until it finds nothing."""
    ran = list[object]()
    for _ in range(most):
        tasks = await limited.claimed(db, worker=worker)
        ran += [each.lease.execution_id for each in tasks]
        await limited.ended(db, tasks)
        if not tasks:
            break
    return ran


@pytest.mark.parametrize("idle", ["paused lane", "kind without a worker"])
@pytest.mark.parametrize("created_by", ["one call", "calls of their own"])
async def test_executions_that_nobody_runs_hold_back_no_others_of_their_key(
    db: Connection, clock: Clock, idle: str, created_by: str
) -> None:
    await limited.limit(db, cap=1)
    apart = {"lane_id": "bulk"} if idle == "paused lane" else {"execution_kind": "other"}
    if created_by == "one call":
        await limited.created(db, *"cccc", **apart)
    else:
        for _ in range(4):
            await limited.created(db, "c", **apart)
    if idle == "paused lane":
        await set_lane_state(db, "bulk", "paused")
    await clock.advance(1)
    ids = list[object]()
    for _ in range(4):
        ids += await limited.created(db, "c")
        await clock.advance(1)

    assert await run_all(db, JOBS, 5) == ids

    # Held back together with the others, while one of the key runs.
    ids = [*await limited.created(db, "c"), *await limited.created(db, *"ccc")]
    assert await run_all(db, JOBS, 5) == ids


async def test_each_route_of_a_key_has_one_that_can_be_claimed(
    db: Connection, clock: Clock
) -> None:
    await limited.limit(db, cap=1)
    [running] = await limited.created(db, "c")
    tasks = await limited.claimed(db)
    await clock.advance(1)
    others = await limited.created(db, "c", "c", execution_kind="other")
    jobs = await limited.created(db, "c", "c")
    assert await limited.claimed(db) == []
    assert await limited.states(db, [*others, *jobs]) == ["rate_limited"] * 4

    await limited.ended(db, tasks)

    assert await limited.states(db, [*others, *jobs]) == ["waiting", "rate_limited"] * 2
    assert await unblock_keys(db, {limited.key("c")}) == 0
    [task] = await limited.claimed(db)
    assert task.lease.execution_id == others[0]
    assert running == tasks[0].lease.execution_id
    assert await limited.claimed(db) == []
    assert await limited.states(db, [*others[1:], *jobs]) == ["rate_limited"] * 3


async def test_the_best_of_a_key_among_the_routes_of_a_worker_is_first(
    db: Connection, clock: Clock
) -> None:
    await limited.limit(db, cap=1)
    ids = list[object]()
    for kind in ("job", "other", "third", "other", "job", "third"):
        ids += await limited.created(db, "c", execution_kind=kind)
        await clock.advance(1)

    assert await run_all(db, given.WORKER, 7) == ids
