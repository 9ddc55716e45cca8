"""runnable(delayed) → runnable."""

from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests import given

Another = Callable[[], Awaitable[Connection]]


async def delayed_create(db: Connection) -> ExecutionId:
    return await given.created(db, delay=1, deadline=3600)


async def delayed_retry(db: Connection) -> ExecutionId:
    lease = await given.claimed(db, policy=given.retrying(), deadline=3600)
    await fail(db, [Failure(lease=lease, reason="boom")])
    return lease.execution_id


async def delayed_rest(db: Connection) -> ExecutionId:
    lease = await given.claimed(db, deadline=3600)
    await delay(db, [DelayRequest(lease=lease, delay=1)])
    return lease.execution_id


@pytest.mark.parametrize(
    ("made", "attempt_state"),
    [
        (delayed_create, "pending_first_attempt"),
        (delayed_retry, "pending_retry_attempt"),
        (delayed_rest, "attempt_interrupted"),
    ],
)
async def test_what_is_due_is_claimable(
    db: Connection,
    clock: Clock,
    made: Callable[[Connection], Awaitable[ExecutionId]],
    attempt_state: str,
) -> None:
    execution_id = await made(db)
    before = await given.row(db, execution_id)
    told = await given.lease_history(db, execution_id)
    await clock.advance(1)

    assert await promote_due(db, limit=10) == 1

    assert await given.standing(db, execution_id) == (
        f"runnable/eligible_now/waiting_for_worker/none/{attempt_state} → waiting"
    )
    assert await given.row(db, execution_id) == before | {
        "eligibility_state": "eligible_now",
        "exceptional_state": None,
        "blocking_reason": "waiting_for_worker",
        "public_state": "waiting",
        "delay_until_ms": None,
        "last_mutation_at_ms": await clock.now_ms(),
    }
    assert await given.lease_history(db, execution_id) == told
    assert await given.completion_events(db, execution_id) == []
    assert len(await claim(db, given.WORKER, ttl=30)) == 1


async def test_what_is_not_due_stays(db: Connection, clock: Clock) -> None:
    await given.created(db, delay=1)
    await clock.advance(0.999)
    before = await given.everything(db)

    assert await promote_due(db, limit=10) == 0

    assert await given.everything(db) == before


async def test_a_second_sweep_finds_nothing(db: Connection, clock: Clock) -> None:
    await given.created(db, delay=1)
    await clock.advance(2)

    assert [await promote_due(db, limit=10) for _ in range(2)] == [1, 0]


async def test_the_longest_overdue_go_first_up_to_the_limit(db: Connection, clock: Clock) -> None:
    ids = {seconds: await given.created(db, delay=seconds) for seconds in (3, 1, 4, 2, 5)}
    await clock.advance(10)

    assert await promote_due(db, limit=2) == 2

    states = {seconds: await given.public_state(db, made) for seconds, made in ids.items()}
    assert states == {1: "waiting", 2: "waiting", 3: "delayed", 4: "delayed", 5: "delayed"}


async def test_a_row_in_use_is_passed_over_and_found_later(
    db: Connection, clock: Clock, another: Another
) -> None:
    busy = await given.created(db, delay=1)
    await given.created(db, delay=2)
    await clock.advance(3)
    other = await another()
    async with other.transaction():
        await other.execute(
            "SELECT FROM ff.exec_core WHERE execution_id = $1 FOR UPDATE", busy.uuid
        )
        assert await promote_due(db, limit=10) == 1

    assert await promote_due(db, limit=10) == 1


async def test_what_runs_waits_or_has_ended_is_left_alone(db: Connection, clock: Clock) -> None:
    await given.claimed(db, ttl=3600)
    await given.created(db)
    await clock.advance(60)
    before = await given.everything(db)

    assert await promote_due(db, limit=10) == 0

    assert await given.everything(db) == before
