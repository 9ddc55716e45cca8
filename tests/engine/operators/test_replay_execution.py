"""terminal → runnable: an execution that has ended runs once more."""

from typing import Any

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.get_execution_result import get_execution_result
from flowfabric.engine.executions.read_outcomes import read_outcomes
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, RetryScheduled, TerminalFailed, fail
from flowfabric.engine.lifecycle.progress import progress
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.replay_execution import Replayed, replay_execution
from flowfabric.errors import (
    ExecutionNotActive,
    ExecutionNotTerminal,
    MaxReplaysExhausted,
    NotFound,
    StaleLease,
    ValidationError,
)
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy, FixedBackoff
from flowfabric.states import AttemptType, PublicState
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import (
    NO_DATABASE,
    RUNNABLE,
    TERMINAL,
    Action,
    actions,
    bad_actors,
    execution,
)
from tests.engine.lifecycle.fenced import Operation, each

REPLAYED = "runnable/eligible_now/waiting_for_worker/none/pending_replay_attempt → waiting"


async def failed(db: Connection, **fields: Any) -> ExecutionId:
    """One execution that failed at its first attempt, for good."""
    lease = await given.claimed(db, **fields)
    await fail(db, [Failure(lease=lease, reason="boom", category="permanent")])
    return lease.execution_id


@pytest.mark.parametrize("state", TERMINAL)
async def test_however_it_ended_it_waits_again(db: Connection, clock: Clock, state: str) -> None:
    execution_id = await execution(db, state)
    ended = await given.row(db, execution_id)
    await clock.advance(5)

    answer = await replay_execution(db, execution_id)

    assert answer == Replayed(execution_id=execution_id, public_state=PublicState.WAITING)
    assert await given.standing(db, execution_id) == REPLAYED
    stored = await given.row(db, execution_id)
    assert stored == stored | {
        "terminal_at_ms": None,
        "failure_reason": None,
        "failure_category": None,
        "cancellation_reason": None,
        "cancelled_by": None,
        "replay_count": 1,
        "lease_epoch": ended["lease_epoch"] + 1,
        "attempt_index": ended["attempt_index"],
        "total_attempt_count": ended["total_attempt_count"],
        "started_at_ms": ended["started_at_ms"],
        "created_at_ms": ended["created_at_ms"],
        "last_mutation_at_ms": await clock.now_ms(),
    }


@pytest.mark.parametrize("state", TERMINAL)
async def test_it_leaves_neither_a_lease_event_nor_a_completion_event(
    db: Connection, clock: Clock, state: str
) -> None:
    execution_id = await execution(db, state)
    leases = await given.lease_events(db, execution_id)
    completions = await given.completion_events(db, execution_id)

    await replay_execution(db, execution_id)

    assert await given.lease_events(db, execution_id) == leases
    assert await given.completion_events(db, execution_id) == completions


async def test_one_operator_event_keeps_what_a_failure_was(db: Connection) -> None:
    execution_id = await failed(db)

    await replay_execution(db, execution_id, actor="alice", reason="fixed the bug")

    assert await actions(db, execution_id) == [
        Action(
            "replayed",
            "alice",
            "fixed the bug",
            {
                "branch": "normal",
                "old_public_state": "failed",
                "new_public_state": "waiting",
                "old_failure_reason": "boom",
                "old_cancellation_reason": None,
                "old_attempt_outcome": "failed",
                "old_worker_instance_id": "w-1",
                "old_deadline_at_ms": None,
                "new_deadline_at_ms": None,
                "replay_count": 1,
            },
        )
    ]


async def test_one_operator_event_keeps_what_a_cancellation_was(db: Connection) -> None:
    lease = await given.claimed(db)
    await cancel_execution(db, lease.execution_id, reason="not needed")

    await replay_execution(db, lease.execution_id)

    told = (await actions(db, lease.execution_id))[-1]
    assert (told.event_type, told.actor, told.reason) == ("replayed", "operator", None)
    assert told.details == told.details | {
        "branch": "normal",
        "old_public_state": "cancelled",
        "old_failure_reason": None,
        "old_cancellation_reason": "not needed",
        "old_attempt_outcome": "cancelled",
    }


async def test_its_event_carries_route_and_tags_of_the_execution(db: Connection) -> None:
    execution_id = await failed(db, tags={"cairn.instance_id": "i-7"})

    await replay_execution(db, execution_id)

    [event] = await db.fetch("SELECT * FROM ff.operator_event")
    assert event["route_id"] == (await given.row(db, execution_id))["route_id"]
    assert msgspec.json.decode(event["tags"]) == {"cairn.instance_id": "i-7"}


async def test_its_last_attempt_is_made_again_under_the_same_index(db: Connection) -> None:
    execution_id = await failed(db)

    await replay_execution(db, execution_id)

    [before] = await given.attempts(db, execution_id)
    assert (before["attempt_index"], before["outcome"]) == (0, "failed")
    [task] = await claim(db, given.OTHER, ttl=30)
    assert (task.lease.attempt_index, task.attempt_type) == (0, AttemptType.REPLAY)
    assert task.total_attempt_count == 1
    await complete(db, [Completion(task.lease, b"done")])
    [attempt] = await given.attempts(db, execution_id)
    assert attempt == attempt | {
        "attempt_index": 0,
        "attempt_type": "replay",
        "outcome": "success",
        "worker_instance_id": "w-2",
        "failure_reason": None,
    }


async def test_earlier_attempts_stay_in_the_ledger(db: Connection, clock: Clock) -> None:
    policy = given.retrying(1, backoff=FixedBackoff(delay=0))
    lease = await given.claimed(db, policy=policy)
    await fail(db, [Failure(lease=lease, reason="first")])
    [task] = await claim(db, given.WORKER, ttl=30)
    await fail(db, [Failure(lease=task.lease, reason="second")])

    await replay_execution(db, lease.execution_id)

    kept = await given.attempts(db, lease.execution_id)
    assert [attempt["failure_reason"] for attempt in kept] == ["first", "second"]
    [task] = await claim(db, given.WORKER, ttl=30)
    assert (task.lease.attempt_index, task.total_attempt_count) == (1, 2)


async def test_it_has_all_its_retries_again(db: Connection) -> None:
    policy = given.retrying(1, backoff=FixedBackoff(delay=0))
    lease = await given.claimed(db, policy=policy)
    await fail(db, [Failure(lease=lease, reason="first")])
    [task] = await claim(db, given.WORKER, ttl=30)
    await fail(db, [Failure(lease=task.lease, reason="second")])

    await replay_execution(db, lease.execution_id)

    assert (await given.row(db, lease.execution_id))["retry_count"] == 0
    [task] = await claim(db, given.WORKER, ttl=30)
    [third] = await fail(db, [Failure(lease=task.lease, reason="third")])
    assert isinstance(third, RetryScheduled)
    [task] = await claim(db, given.WORKER, ttl=30)
    [fourth] = await fail(db, [Failure(lease=task.lease, reason="fourth")])
    assert isinstance(fourth, TerminalFailed)


async def test_it_bears_as_many_lost_leases_as_at_first(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=1, policy=ExecutionPolicy(max_reclaim_count=1))
    for _ in range(2):
        await clock.advance(1)
        await expire_leases(db, limit=10)
        await claim(db, given.WORKER, ttl=1)
    assert await given.public_state(db, lease.execution_id) == "failed"

    await replay_execution(db, lease.execution_id)

    assert (await given.row(db, lease.execution_id))["lease_reclaim_count"] == 0
    await claim(db, given.WORKER, ttl=1)
    await clock.advance(1)
    await expire_leases(db, limit=10)
    assert await given.public_state(db, lease.execution_id) == "waiting"


async def test_a_retry_that_waited_and_was_cancelled_is_made_as_the_next_attempt(
    db: Connection,
) -> None:
    execution_id = await execution(db, "retrying")
    await cancel_execution(db, execution_id, reason="no")

    await replay_execution(db, execution_id)

    assert len(await given.attempts(db, execution_id)) == 1
    assert (await actions(db, execution_id))[-1].details["old_attempt_outcome"] is None
    [task] = await claim(db, given.WORKER, ttl=30)
    assert (task.lease.attempt_index, task.total_attempt_count) == (1, 2)


async def test_what_was_cancelled_before_its_first_attempt_runs_for_the_first_time(
    db: Connection,
) -> None:
    execution_id = await execution(db, "cancelled")

    await replay_execution(db, execution_id)

    [task] = await claim(db, given.WORKER, ttl=30)
    assert task.lease.execution_id == execution_id
    assert (task.lease.attempt_index, task.total_attempt_count) == (0, 1)
    [done] = await complete(db, [Completion(task.lease, b"done")])
    assert done == Completed(execution_id=execution_id)


async def test_its_result_is_gone_until_it_is_written_anew(db: Connection) -> None:
    execution_id = await execution(db, "completed")

    await replay_execution(db, execution_id)

    assert await get_execution_result(db, execution_id) is None
    assert await read_outcomes(db, [execution_id]) == {}
    [task] = await claim(db, given.WORKER, ttl=30)
    await complete(db, [Completion(task.lease, b"anew")])
    assert await get_execution_result(db, execution_id) == b"anew"
    assert await given.completion_events(db, execution_id) == ["success", "success"]


async def test_its_progress_begins_anew(db: Connection) -> None:
    lease = await given.claimed(db)
    await progress(db, lease, percent=90, message="nearly")
    await complete(db, [Completion(lease)])

    await replay_execution(db, lease.execution_id)

    stored = await given.row(db, lease.execution_id)
    assert (stored["progress_pct"], stored["progress_message"]) == (None, None)


@each
async def test_nothing_that_the_old_holder_writes_is_taken(
    db: Connection, operation: Operation
) -> None:
    lease = await given.claimed(db, policy=given.retrying())
    await complete(db, [Completion(lease, b"done")])
    await replay_execution(db, lease.execution_id)
    before = await given.everything(db)

    [answer] = await operation(db, [lease])

    assert isinstance(answer, ExecutionNotActive)
    assert await given.everything(db) == before


async def test_the_old_holders_completion_is_refused_while_another_runs_it_and_after(
    db: Connection,
) -> None:
    lease = await given.claimed(db)
    await complete(db, [Completion(lease, b"old")])
    await replay_execution(db, lease.execution_id)
    [task] = await claim(db, given.OTHER, ttl=30)

    [during] = await complete(db, [Completion(lease, b"late")])
    await complete(db, [Completion(task.lease, b"new")])
    [after] = await complete(db, [Completion(lease, b"late")])

    assert isinstance(during, StaleLease)
    assert isinstance(after, ExecutionNotActive)
    assert await get_execution_result(db, lease.execution_id) == b"new"


async def test_what_was_delayed_when_it_was_cancelled_is_due_at_once(
    db: Connection, clock: Clock
) -> None:
    execution_id = await given.created(db, delay=60)
    await cancel_execution(db, execution_id, reason="no")

    await replay_execution(db, execution_id)

    assert await given.standing(db, execution_id) == REPLAYED
    assert await promote_due(db, limit=10) == 0


@pytest.mark.parametrize(("policy", "most"), [(None, 10), (ExecutionPolicy(max_replay_count=2), 2)])
async def test_it_is_replayed_as_often_as_its_policy_allows(
    db: Connection, policy: ExecutionPolicy | None, most: int
) -> None:
    execution_id = await given.created(db, policy=policy)
    for _ in range(most):
        await cancel_execution(db, execution_id, reason="no")
        await replay_execution(db, execution_id)
    await cancel_execution(db, execution_id, reason="no")
    before = await given.everything(db)

    with pytest.raises(MaxReplaysExhausted) as raised:
        await replay_execution(db, execution_id)

    assert raised.value.replay_count == most
    assert await given.everything(db) == before


async def test_a_policy_without_replays_allows_none(db: Connection) -> None:
    execution_id = await failed(db, policy=ExecutionPolicy(max_replay_count=0))

    with pytest.raises(MaxReplaysExhausted):
        await replay_execution(db, execution_id)


@pytest.mark.parametrize("state", [*RUNNABLE, "active"])
async def test_what_has_not_ended_cannot_be_replayed(db: Connection, state: str) -> None:
    execution_id = await execution(db, state)
    before = await given.everything(db)

    with pytest.raises(ExecutionNotTerminal) as raised:
        await replay_execution(db, execution_id)

    assert raised.value.public_state == await given.public_state(db, execution_id)
    assert await given.everything(db) == before


async def test_that_it_has_not_ended_is_told_before_that_replays_are_used_up(
    db: Connection,
) -> None:
    execution_id = await given.created(db, policy=ExecutionPolicy(max_replay_count=0))

    with pytest.raises(ExecutionNotTerminal):
        await replay_execution(db, execution_id)


async def test_what_is_not_there_cannot_be_replayed(db: Connection) -> None:
    with pytest.raises(NotFound) as raised:
        await replay_execution(db, ExecutionId.mint())

    assert raised.value.entity == "execution"
    assert await actions(db) == []


@bad_actors
async def test_an_actor_that_cannot_be_stored_is_refused_before_any_sql(actor: str) -> None:
    with pytest.raises(ValidationError, match="actor"):
        await replay_execution(NO_DATABASE, ExecutionId.mint(), actor=actor)
