"""What a worker could claim, also while another transaction has it locked."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.count_claimable import count_claimable
from flowfabric.engine.lanes.set_lane_state import set_lane_state
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.errors import ValidationError
from flowfabric.testing import Clock
from tests import given
from tests.engine.grants import granted


async def test_a_claim_passes_over_what_is_locked_and_the_count_does_not(
    db: Connection, another: Callable[[], Awaitable[Connection]]
) -> None:
    await given.created(db)
    other = await another()

    async with other.transaction():
        await other.execute("SELECT FROM ff.ready FOR UPDATE")
        assert await claim(db, given.WORKER, ttl=10) == []
        assert await count_claimable(db, given.WORKER) == 1

    assert len(await claim(db, given.WORKER, ttl=10)) == 1
    assert await count_claimable(db, given.WORKER) == 0


async def test_what_the_worker_cannot_run_is_not_counted(db: Connection) -> None:
    await given.created(db, required_capabilities=("gpu",))
    able = msgspec.structs.replace(given.WORKER, capabilities=("gpu",))

    for claimant, claimable in (
        (given.WORKER, 0),
        (able, 1),
        (msgspec.structs.replace(able, kinds=("job",)), 1),
        (msgspec.structs.replace(able, kinds=("another",)), 0),
        (msgspec.structs.replace(able, lanes=("another",)), 0),
        (msgspec.structs.replace(able, namespace="another"), 0),
    ):
        assert await count_claimable(db, claimant) == claimable


async def test_what_nobody_may_claim_now_is_not_counted(db: Connection, clock: Clock) -> None:
    await given.created(db, deadline=5)
    assert await count_claimable(db, given.WORKER) == 1
    await clock.advance(5)
    assert await count_claimable(db, given.WORKER) == 0

    await granted.keyed(db)
    await granted.claim_granted(db, await given.created(db), worker_id="another")
    other = msgspec.structs.replace(given.WORKER, worker_id="another")
    assert await count_claimable(db, given.WORKER) == 0
    assert await count_claimable(db, other) == 1

    await set_lane_state(db, "default", "paused")
    assert await count_claimable(db, other) == 0


async def test_it_counts_no_further_than_asked(db: Connection) -> None:
    for kind in ("job", "job", "another"):
        await given.created(db, execution_kind=kind)

    assert await count_claimable(db, given.WORKER, at_most=2) == 2
    assert await count_claimable(db, given.WORKER) == 3
    with pytest.raises(ValidationError, match="at_most"):
        await count_claimable(db, given.WORKER, at_most=0)
