"""Who runs an execution, or how it came to its end."""

from datetime import timedelta

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.explain_execution import explain_execution
from flowfabric.engine.executions.explanation import ExplanationReason, ReasonCode
from flowfabric.engine.lifecycle.cancel import Cancellation, cancel
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.progress import progress
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.policy import ExecutionPolicy, TimeoutPolicy
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import TERMINAL, execution
from tests.engine.executions.explained import at, only, whys, worker

RUNNING = "it ends by itself; ff executions revoke requeues it, cancel ends it"


async def test_a_worker_runs_it(db: Connection, clock: Clock) -> None:
    await worker(db)
    lease = await given.claimed(db, ttl=30)
    began = await clock.now()
    await clock.advance(5)

    assert await only(db, lease.execution_id) == ExplanationReason(
        why=ReasonCode.HELD,
        message=f"runs on worker 'w-1' until {at(began + timedelta(seconds=30))} "
        f"or its next renewal, attempt 1 since {at(began)}",
        remedy=RUNNING,
    )


async def test_how_far_it_is_and_when_its_attempt_ends_is_told(
    db: Connection, clock: Clock
) -> None:
    await worker(db)
    policy = ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout=90))
    lease = await given.claimed(db, ttl=30, policy=policy)
    await progress(db, lease, percent=42, message="halfway")
    ends = await clock.now() + timedelta(seconds=90)

    reason = await only(db, lease.execution_id)

    assert reason.message.endswith(f", 42 % done (halfway); the attempt is ended at {at(ends)}")


async def test_its_holder_is_not_registered(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=30)
    began = await clock.now()

    assert await only(db, lease.execution_id) == ExplanationReason(
        why=ReasonCode.HOLDER_SILENT,
        message="held by worker 'w-1', which is not registered as alive, "
        f"attempt 1 since {at(began)}",
        remedy="it is claimable again when the lease expires, or after ff executions revoke",
        clears_at=began + timedelta(seconds=30),
    )


@pytest.mark.parametrize("namespace", ["default", "acme"])
async def test_its_holder_went_silent_or_has_a_namesake_elsewhere(
    db: Connection, clock: Clock, namespace: str
) -> None:
    await worker(db, liveness_ttl=5 if namespace == "default" else 600, namespace=namespace)
    lease = await given.claimed(db, ttl=30)
    await clock.advance(5)

    assert await whys(db, lease.execution_id) == [ReasonCode.HOLDER_SILENT]


async def test_its_holder_let_the_lease_run_out(db: Connection, clock: Clock) -> None:
    await worker(db, liveness_ttl=600)
    lease = await given.claimed(db, ttl=30)
    began = await clock.now()
    await clock.advance(30)

    assert await only(db, lease.execution_id) == ExplanationReason(
        why=ReasonCode.LEASE_EXPIRED,
        message=f"the lease of worker 'w-1' expired at {at(began + timedelta(seconds=30))}, "
        f"attempt 1 since {at(began)}",
        remedy="the next sweep makes it claimable again: is a worker running? ff workers",
    )


async def test_a_deadline_is_told_beside_who_runs_it(db: Connection) -> None:
    await worker(db)
    lease = await given.claimed(db, deadline=60)

    assert await whys(db, lease.execution_id) == [ReasonCode.HELD, ReasonCode.DEADLINE]


ENDS = {
    "completed": "completed at {} after 1 attempt",
    "failed": "failed at {} after 1 attempt (transient): boom",
    "cancelled": "cancelled at {} by operator: no; it never ran",
    "expired": "expired at {} after 0 attempts: execution_deadline: its deadline, {}, passed; "
    "it never ran",
    "skipped": "skipped at {}: its upstreams made its join impossible; it never ran",
}


@pytest.mark.parametrize("state", TERMINAL)
async def test_how_it_ended_is_told(db: Connection, clock: Clock, state: str) -> None:
    execution_id = await execution(db, state)
    ended = await clock.now()
    await clock.advance(5)

    raised = "raise deadline= of the task or the call for later calls; "
    first = raised if state == "expired" else ""
    assert await only(db, execution_id) == ExplanationReason(
        why=ReasonCode(state),
        message=ENDS[state].format(at(ended), at(ended - timedelta(seconds=1))),
        remedy=f"{first}run it again (10 replays left): ff executions replay '{execution_id}'",
    )


async def test_what_has_ended_stands_there_since_its_end_and_has_no_deadline(
    db: Connection, clock: Clock
) -> None:
    execution_id = await execution(db, "completed", deadline=60)
    ended = await clock.now()
    await clock.advance(5)

    told = await explain_execution(db, execution_id)

    assert told.since == ended
    assert [reason.why for reason in told.reasons] == [ReasonCode.COMPLETED]


async def test_whoever_cancelled_it_is_named(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    await cancel_execution(db, lease.execution_id, reason="not needed", actor="alice")

    assert (await only(db, lease.execution_id)).message == (
        f"cancelled at {at(await clock.now())} by alice: not needed"
    )


async def test_a_worker_that_cancelled_it_is_named(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    await cancel(db, [Cancellation(lease, "not needed")])

    assert (await only(db, lease.execution_id)).message == (
        f"cancelled at {at(await clock.now())} by worker: not needed"
    )


async def test_of_two_cancels_with_a_replay_between_the_last_is_named(
    db: Connection, clock: Clock
) -> None:
    execution_id = await given.created(db)
    await cancel_execution(db, execution_id, reason="not needed", actor="alice")
    await replay_execution(db, execution_id)
    [task] = await claim(db, given.WORKER, ttl=30)
    await cancel(db, [Cancellation(task.lease, "pointless")])

    assert (await only(db, execution_id)).message == (
        f"cancelled at {at(await clock.now())} by worker: pointless"
    )


async def test_a_deadline_that_ended_a_running_attempt_is_told(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, deadline=5)
    await clock.advance(5)
    await expire_executions(db, limit=10)

    now, reason = at(await clock.now()), await only(db, lease.execution_id)
    assert reason.message == (
        f"expired at {now} after 1 attempt: execution_deadline: its deadline, {now}, passed"
    )
    assert reason.remedy.startswith("raise deadline= of the task or the call for later calls; run")


async def test_an_attempt_that_took_too_long_is_told(db: Connection, clock: Clock) -> None:
    policy = ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout=5))
    lease = await given.claimed(db, policy=policy)
    await clock.advance(5)
    await expire_attempts(db, limit=10)

    reason = await only(db, lease.execution_id)
    assert reason.message.endswith(": attempt_timeout: the attempt exceeded its timeout of 5 s")
    assert reason.remedy.startswith("raise timeout= of the task for later calls; run it again")


async def test_a_result_of_a_wrong_type_is_not_only_run_again(db: Connection) -> None:
    lease = await given.claimed(db)
    await fail(db, [Failure(lease=lease, reason="no int", category="result_encode")])

    assert (await only(db, lease.execution_id)).remedy.startswith(
        "mend the task; then run it again"
    )


async def test_too_many_lost_leases_are_told(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=5, policy=ExecutionPolicy(max_reclaim_count=0))
    await clock.advance(5)
    await expire_leases(db, limit=10)

    assert (await only(db, lease.execution_id)).message.endswith(
        "(infra_crash): max_reclaims_exceeded"
    )


async def test_how_many_replays_are_left_is_told(db: Connection) -> None:
    execution_id = await execution(db, "cancelled", policy=ExecutionPolicy(max_replay_count=2))
    remedies = [(await only(db, execution_id)).remedy]
    for _ in range(2):
        await replay_execution(db, execution_id)
        await cancel_execution(db, execution_id, reason="no")
        remedies.append((await only(db, execution_id)).remedy)

    again = f"ff executions replay '{execution_id}'"
    assert remedies == [
        f"run it again (2 replays left): {again}",
        f"run it again (1 replay left): {again}",
        "nothing: it was replayed 2 times, as often as its policy allows",
    ]
