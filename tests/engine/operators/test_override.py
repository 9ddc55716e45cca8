"""An operator completes, fails or delays what its holder does not let go, without a fence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.get_execution_result import get_execution_result
from flowfabric.engine.joins.dispatch_completions import dispatch_completions
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.delay import Delayed
from flowfabric.engine.lifecycle.fail import TerminalFailed
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.errors import ExecutionNotActive, NotFound, StaleLease, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import RUNNABLE, TERMINAL, actions, bad_actors, execution
from tests.engine.flows.graphs import submitted
from tests.engine.lifecycle.fenced import OPERATIONS

Override = Callable[[Engine, ExecutionId], Awaitable[Any]]
OVERRIDES: dict[str, Override] = {
    "complete": lambda engine, each: engine.override_complete(
        each, result=b"42", reason="stuck", actor="ann"
    ),
    "fail": lambda engine, each: engine.override_fail(each, reason="stuck", actor="ann"),
    "delay": lambda engine, each: engine.override_delay(
        each, delay=60, reason="stuck", actor="ann"
    ),
}
each_override = pytest.mark.parametrize("override", OVERRIDES.values(), ids=OVERRIDES)
ENDING = {name: override for name, override in OVERRIDES.items() if name != "delay"}
each_ending = pytest.mark.parametrize("override", ENDING.values(), ids=ENDING)

COMPLETED = "terminal/not_applicable/none/success/attempt_terminal → completed"
FAILED = "terminal/not_applicable/none/failed/attempt_terminal → failed"
DELAYED = "runnable/not_eligible_until_time/waiting_for_delay/none/attempt_interrupted → delayed"


def facts(lease: Lease, new_public_state: str, **more: object) -> dict[str, object]:
    return {
        "source": "operator_override",
        "old_public_state": "active",
        "new_public_state": new_public_state,
        "attempt_index": 0,
        "lease_id": str(lease.lease_id),
        "worker_instance_id": "w-1",
        "old_lease_epoch": 1,
        "new_lease_epoch": 2,
        **more,
    }


async def test_an_operator_completes_what_its_worker_does_not_let_go(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    lease = await given.claimed(db)

    answer = await OVERRIDES["complete"](ff_engine, lease.execution_id)

    assert answer == Completed(execution_id=lease.execution_id)
    assert await given.standing(db, lease.execution_id) == COMPLETED
    assert await get_execution_result(db, lease.execution_id) == b"42"
    assert (await given.row(db, lease.execution_id))["failure_reason"] is None
    [attempt] = await given.attempts(db, lease.execution_id)
    assert (attempt["outcome"], attempt["worker_instance_id"]) == ("success", "w-1")
    assert await given.completion_events(db, lease.execution_id) == ["success"]
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("revoked", "operator"),
    ]
    [action] = await actions(db, lease.execution_id)
    assert (action.event_type, action.actor, action.reason) == ("completed", "ann", "stuck")
    assert action.details == facts(lease, "completed")


async def test_an_operator_fails_it_whatever_its_retries(db: Connection, ff_engine: Engine) -> None:
    lease = await given.claimed(db, policy=given.retrying())

    answer = await OVERRIDES["fail"](ff_engine, lease.execution_id)

    assert answer == TerminalFailed(execution_id=lease.execution_id)
    assert await given.standing(db, lease.execution_id) == FAILED
    stored = await given.row(db, lease.execution_id)
    assert (stored["failure_reason"], stored["failure_category"]) == ("stuck", "operator_override")
    [attempt] = await given.attempts(db, lease.execution_id)
    assert (attempt["outcome"], attempt["failure_reason"]) == ("failed", "stuck")
    assert await given.completion_events(db, lease.execution_id) == ["failed"]
    [action] = await actions(db, lease.execution_id)
    assert (action.event_type, action.actor, action.reason) == ("failed", "ann", "stuck")
    assert action.details == facts(lease, "failed")


async def test_an_operator_delays_it_and_the_same_attempt_goes_on_later(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    lease = await given.claimed(db)
    until = await clock.now_ms() + 60_000

    answer = await OVERRIDES["delay"](ff_engine, lease.execution_id)

    assert answer == Delayed(execution_id=lease.execution_id)
    assert await given.standing(db, lease.execution_id) == DELAYED
    assert (await given.row(db, lease.execution_id))["delay_until_ms"] == until
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt["outcome"] == "interrupted"
    assert await given.completion_events(db, lease.execution_id) == []
    [action] = await actions(db, lease.execution_id)
    assert (action.event_type, action.actor, action.reason) == ("delayed", "ann", "stuck")
    assert action.details == facts(lease, "delayed", delay_until_ms=until)
    await clock.advance(60)
    await promote_due(db, limit=10)
    [task] = await claim(db, given.OTHER, ttl=30)
    assert (task.lease.attempt_index, task.total_attempt_count) == (0, 1)
    assert (await given.row(db, lease.execution_id))["lease_reclaim_count"] == 0


async def test_a_delay_may_be_given_as_an_instant(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    lease = await given.claimed(db)
    until = await clock.now() + timedelta(hours=1)

    await ff_engine.override_delay(lease.execution_id, delay_until=until)

    stored = await given.row(db, lease.execution_id)
    assert stored["delay_until_ms"] == until.timestamp() * 1000


@pytest.mark.parametrize("given_times", [{}, {"delay": 1, "delay_until": "both"}])
async def test_a_delay_needs_one_of_its_two_times(
    db: Connection, ff_engine: Engine, clock: Clock, given_times: dict[str, Any]
) -> None:
    lease = await given.claimed(db)
    if given_times:
        given_times = given_times | {"delay_until": await clock.now()}

    with pytest.raises(ValidationError, match="only one"):
        await ff_engine.override_delay(lease.execution_id, **given_times)


@each_override
async def test_a_lease_that_has_expired_is_no_obstacle(
    db: Connection, ff_engine: Engine, clock: Clock, override: Override
) -> None:
    lease = await given.claimed(db, ttl=3)
    await clock.advance(10)

    await override(ff_engine, lease.execution_id)

    assert await given.public_state(db, lease.execution_id) is not PublicState.ACTIVE


@each_override
@pytest.mark.parametrize("name", OPERATIONS)
async def test_the_worker_that_still_runs_changes_nothing_any_more(
    db: Connection, ff_engine: Engine, override: Override, name: str
) -> None:
    lease = await given.claimed(db, policy=given.retrying())
    await override(ff_engine, lease.execution_id)
    before = await given.everything(db)

    [answer] = await OPERATIONS[name](db, [lease])

    assert isinstance(answer, ExecutionNotActive)
    assert await given.everything(db) == before


async def test_the_worker_that_still_runs_hears_that_its_lease_is_stale_once_another_has_it(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    lease = await given.claimed(db)
    await ff_engine.override_delay(lease.execution_id, delay=1)
    await clock.advance(1)
    await promote_due(db, limit=10)
    await claim(db, given.OTHER, ttl=30)

    [answer] = await renew(db, [lease], ttl=30)

    assert isinstance(answer, StaleLease)


@each_override
@pytest.mark.parametrize("state", [*RUNNABLE, *TERMINAL])
async def test_what_no_worker_holds_is_refused(
    db: Connection, ff_engine: Engine, override: Override, state: str
) -> None:
    execution_id = await execution(db, state)
    before = await given.everything(db)

    with pytest.raises(ExecutionNotActive):
        await override(ff_engine, execution_id)

    assert await given.everything(db) == before


@each_override
async def test_what_does_not_exist_is_not_found(ff_engine: Engine, override: Override) -> None:
    with pytest.raises(NotFound):
        await override(ff_engine, ExecutionId.mint())


@each_ending
async def test_an_end_that_is_repeated_is_answered_again_and_written_once(
    db: Connection, ff_engine: Engine, override: Override
) -> None:
    lease = await given.claimed(db)
    first = await override(ff_engine, lease.execution_id)
    before = await given.everything(db)

    again = await override(ff_engine, lease.execution_id)

    assert (type(again), again.execution_id) == (type(first), lease.execution_id)
    assert (first.repeated, again.repeated) == (False, True)
    assert await given.everything(db) == before


async def test_a_result_of_the_worker_is_not_taken_for_that_of_the_operator(
    db: Connection, ff_engine: Engine
) -> None:
    lease = await given.claimed(db)
    await ff_engine.override_complete(lease.execution_id)
    await ff_engine.replay_execution(lease.execution_id)
    [task] = await claim(db, given.WORKER, ttl=30)
    await complete(db, [Completion(task.lease, b"its own")])

    with pytest.raises(ExecutionNotActive):
        await ff_engine.override_complete(lease.execution_id, result=b"another")


async def test_members_downstream_go_on_with_the_result_of_the_operator(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a>b")
    [task] = await claim(db, given.WORKER, ttl=30)

    await ff_engine.override_complete(task.lease.execution_id, result=b"1")
    async with db.transaction():
        await dispatch_completions(db)

    [next_one] = await claim(db, given.WORKER, ttl=30)
    assert next_one.lease.execution_id == flow["b"]


async def test_members_downstream_of_a_failure_are_skipped(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a>b")
    [task] = await claim(db, given.WORKER, ttl=30)

    await ff_engine.override_fail(task.lease.execution_id, reason="no")
    async with db.transaction():
        await dispatch_completions(db)

    assert await given.public_state(db, flow["b"]) is PublicState.SKIPPED


@bad_actors
@pytest.mark.parametrize("name", OVERRIDES)
async def test_an_actor_that_cannot_be_stored(ff_engine: Engine, actor: str, name: str) -> None:
    call = getattr(ff_engine, f"override_{name}")
    more = {"complete": {}, "fail": {"reason": "no"}, "delay": {"delay": 1}}[name]

    with pytest.raises(ValidationError, match="actor"):
        await call(ExecutionId.mint(), actor=actor, **more)
