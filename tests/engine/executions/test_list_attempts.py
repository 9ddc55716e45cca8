"""The attempts of one execution."""

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.get_execution_result import get_execution_result
from flowfabric.engine.executions.list_attempts import list_attempts
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.ids import ExecutionId, attempt_id
from flowfabric.policy import FixedBackoff
from flowfabric.states import AttemptOutcome, AttemptType
from flowfabric.testing import Clock
from tests import given


async def replayed(db: Connection, execution_id: ExecutionId) -> None:
    async with db.transaction():
        await replay_execution(db, execution_id)


AT_ONCE = given.retrying(9, backoff=FixedBackoff(delay=0))


async def test_what_was_never_tried_has_no_attempts(db: Connection) -> None:
    assert await list_attempts(db, await given.created(db)) == []
    assert await list_attempts(db, ExecutionId.mint()) == []


async def test_the_attempt_that_runs_is_open(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)

    [attempt] = await list_attempts(db, lease.execution_id)

    assert (attempt.outcome, attempt.ended_at) == (None, None)
    assert attempt.attempt_id == attempt_id(lease.execution_id, 0)
    assert attempt.attempt_type is AttemptType.INITIAL
    assert (attempt.lease_id, attempt.lease_epoch) == (lease.lease_id, lease.lease_epoch)
    assert (attempt.worker_id, attempt.worker_instance_id) == ("w", "w-1")
    assert attempt.started_at == await clock.now()


async def test_attempts_come_in_order_with_their_outcomes(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, policy=AT_ONCE)
    await clock.advance(5)
    await fail(db, [Failure(lease=lease, reason="boom", category="flaky", detail="trace")])
    failed_at = await clock.now()
    [retry] = await claim(db, given.OTHER, ttl=30)
    await complete(db, [Completion(retry.lease, b"42")])

    first, second = await list_attempts(db, lease.execution_id)

    assert (first.attempt_index, first.attempt_type) == (0, AttemptType.INITIAL)
    assert (first.outcome, first.ended_at) == (AttemptOutcome.RETRY, failed_at)
    assert (first.failure_reason, first.failure_category, first.failure_detail) == (
        "boom",
        "flaky",
        "trace",
    )
    assert (second.attempt_index, second.attempt_type) == (1, AttemptType.RETRY)
    assert second.outcome is AttemptOutcome.SUCCESS
    assert (second.worker_instance_id, second.failure_reason) == ("w-2", None)


async def test_an_interrupted_attempt_that_runs_again_is_shown_once_and_open(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)
    began = await clock.now()
    await clock.advance(5)
    await release(db, [lease])
    [interrupted] = await list_attempts(db, lease.execution_id)
    [task] = await claim(db, given.OTHER, ttl=30)

    [attempt] = await list_attempts(db, lease.execution_id)

    assert interrupted.outcome is AttemptOutcome.LEASE_REVOKED
    assert (attempt.outcome, attempt.started_at) == (None, began)
    assert attempt.lease_epoch == task.lease.lease_epoch


async def test_attempts_of_others_are_not_shown(db: Connection) -> None:
    lease = await given.claimed(db)
    await given.claimed(db)

    assert len(await list_attempts(db, lease.execution_id)) == 1


async def test_a_replay_that_is_cancelled_before_it_runs_keeps_the_attempt_that_failed(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)
    await clock.advance(5)
    await fail(db, [Failure(lease=lease, reason="boom", detail="trace")])
    [failed] = await list_attempts(db, lease.execution_id)

    await replayed(db, lease.execution_id)
    while_it_waits = await list_attempts(db, lease.execution_id)
    async with db.transaction():
        await cancel_execution(db, lease.execution_id, reason="no")

    assert failed.outcome is AttemptOutcome.FAILED
    assert while_it_waits == [failed]
    assert await list_attempts(db, lease.execution_id) == [failed]


async def test_a_replay_that_runs_takes_the_place_of_the_attempt_before(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)
    await fail(db, [Failure(lease=lease, reason="boom", detail="trace")])
    await clock.advance(60)
    await replayed(db, lease.execution_id)
    [again] = await claim(db, given.OTHER, ttl=30)
    began = await clock.now()
    await clock.advance(5)
    await complete(db, [Completion(again.lease, b"42")])

    [attempt] = await list_attempts(db, lease.execution_id)

    assert (attempt.attempt_index, attempt.attempt_type) == (0, AttemptType.REPLAY)
    assert (attempt.outcome, attempt.started_at) == (AttemptOutcome.SUCCESS, began)
    assert (attempt.failure_reason, attempt.failure_detail) == (None, None)
    assert attempt.worker_instance_id == "w-2"


async def test_a_replay_has_no_result_until_it_has_one_of_its_own(db: Connection) -> None:
    lease = await given.claimed(db)
    await complete(db, [Completion(lease, b"old")])
    await replayed(db, lease.execution_id)
    async with db.transaction():
        await cancel_execution(db, lease.execution_id, reason="no")

    assert await get_execution_result(db, lease.execution_id) is None
    assert [row["result"] for row in await given.attempts(db, lease.execution_id)] == [None]
