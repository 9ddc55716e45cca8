"""active → delayed: trouble with the database stopped the handler; it has a bound of its own."""

from datetime import timedelta

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.describe_execution import describe_execution
from flowfabric.engine.executions.explain_execution import explain_execution
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.fail import Failure, TerminalFailed, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.lifecycle.release_after_trouble import (
    MAX_RELEASES,
    ReleasedAfterTrouble,
    Trouble,
    release_after_trouble,
)
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.errors import StaleLease
from flowfabric.states import PublicState
from flowfabric.testing import Clock
from tests import given


async def released(db: Connection, lease: Lease) -> ReleasedAfterTrouble:
    [answer] = await release_after_trouble(db, [Trouble(lease=lease, reason="no room")])
    assert isinstance(answer, ReleasedAfterTrouble), answer
    return answer


async def claimed_again(db: Connection, clock: Clock) -> Lease:
    """The lease of the next start, once its delay is over."""
    await clock.advance(61)
    await promote_due(db, 10)
    [task] = await claim(db, given.WORKER, ttl=30)
    return task.lease


async def test_the_same_attempt_starts_again_after_a_short_delay(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)

    answer = await released(db, lease)

    now = await clock.now()
    assert answer.delay_until is not None
    assert timedelta(seconds=0.25) <= answer.delay_until - now <= timedelta(seconds=0.5)
    assert await given.standing(db, lease.execution_id) == (
        "runnable/not_eligible_until_time/waiting_for_delay/none/attempt_interrupted → delayed"
    )
    stored = await given.row(db, lease.execution_id)
    assert stored == stored | {
        "attempt_index": 0,
        "retry_count": 0,
        "lease_reclaim_count": 0,
        "infra_release_count": 1,
        "failure_reason": "no room",
        "failure_category": "infra_crash",
    }
    again = await claimed_again(db, clock)
    assert again.attempt_index == lease.attempt_index
    assert (await given.row(db, lease.execution_id))["lease_reclaim_count"] == 0


async def test_delays_grow_and_after_the_bound_the_execution_fails(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, policy=given.retrying(max_retries=3))
    delays: list[float] = []
    for _ in range(MAX_RELEASES):
        answer = await released(db, lease)
        assert answer.delay_until is not None
        delays.append((answer.delay_until - await clock.now()).total_seconds())
        lease = await claimed_again(db, clock)

    [ended] = await release_after_trouble(db, [Trouble(lease=lease, reason="no room")])

    assert delays[0] < 0.6
    assert 2 <= delays[3] <= 4
    assert 30 <= delays[-1] <= 60
    assert ended == TerminalFailed(execution_id=lease.execution_id)
    stored = await given.row(db, lease.execution_id)
    assert stored == stored | {
        "public_state": "failed",
        "failure_reason": "released 20 times because of database trouble: no room",
        "failure_category": "infra_crash",
        "retry_count": 0,
    }
    assert await given.completion_events(db, lease.execution_id) == ["failed"]


async def test_what_the_handler_itself_brings_about_begins_the_count_anew(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, policy=given.retrying(max_retries=3))
    await released(db, lease)
    lease = await claimed_again(db, clock)

    await fail(db, [Failure(lease=lease, reason="declined")])

    assert (await given.row(db, lease.execution_id))["infra_release_count"] == 0


async def test_a_replay_begins_the_count_anew(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    await released(db, lease)
    lease = await claimed_again(db, clock)
    await complete(db, [Completion(lease, None)])

    await replay_execution(db, lease.execution_id)

    assert (await given.row(db, lease.execution_id))["infra_release_count"] == 0


async def test_a_call_that_is_repeated_after_a_lost_answer_counts_once(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)
    first = await released(db, lease)

    again = await released(db, lease)

    assert (again.repeated, again.delay_until) == (True, first.delay_until)
    assert (await given.row(db, lease.execution_id))["infra_release_count"] == 1


async def test_who_does_not_hold_the_lease_releases_nothing(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    await released(db, lease)
    current = await claimed_again(db, clock)

    [refused] = await release_after_trouble(db, [Trouble(lease=lease, reason="late")])

    assert isinstance(refused, StaleLease)
    assert await given.public_state(db, current.execution_id) is PublicState.ACTIVE


async def test_explain_and_describe_say_how_often_and_until_when(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)
    for _ in range(2):
        await released(db, lease)
        lease = await claimed_again(db, clock)
    await released(db, lease)

    [first, *_] = (await explain_execution(db, lease.execution_id)).reasons
    snapshot = await describe_execution(db, lease.execution_id)

    assert "released 3 times because of database trouble (no room)" in first.message
    assert first.clears_at is not None
    assert snapshot is not None
    assert snapshot.infra_release_count == 3
    assert snapshot.delay_until == first.clears_at
