"""Signals with tokens, timeouts and whatever else resumes an execution, in the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from flowfabric.engine.operators.resume_execution import Resumed
from flowfabric.engine.operators.wake_execution import Woken
from flowfabric.engine.suspensions.close_waitpoint import ClosedWaitpoint
from flowfabric.engine.suspensions.expire_suspension import SuspensionExpired, SuspensionNotExpired
from flowfabric.engine.suspensions.signal_answers import SignalAccepted, SignalDuplicate
from flowfabric.errors import (
    ExecutionNotEligible,
    ExecutionNotSuspended,
    InvalidToken,
    MissingToken,
    NotFound,
    TargetNotSignalable,
    WaitpointClosed,
)
from flowfabric.ids import ExecutionId
from flowfabric.policy import DAY_MS
from flowfabric.states import SignalEffect, TimeoutBehavior
from tests.proofs.model.conditions import Signals, found, holds, match_of
from tests.proofs.model.records import Execution, World
from tests.proofs.model.suspending import token_of
from tests.proofs.model.wait_records import Received, Waitpoint

ENDINGS = {
    "fail": ("failed", "suspension_timeout:fail"),
    "cancel": ("cancelled", "suspension_timeout_cancel"),
    "expire": ("expired", "suspension_timeout_expire"),
}


def deliver_signal(
    world: World,
    execution_id: ExecutionId,
    waitpoint_id: UUID,
    token: str,
    signal: Received,
    *,
    key: str | None,
    delay_ms: int | None,
) -> SignalAccepted | SignalDuplicate:
    each = world.executions.get(execution_id)
    if each is None:
        raise NotFound("execution", execution_id)
    if not token:
        raise MissingToken
    waitpoint = each.waitpoints.get(waitpoint_id)
    if waitpoint is None or token != token_of(execution_id, waitpoint_id).reveal():
        raise InvalidToken
    return accept(world, each, waitpoint, signal, key=key, delay_ms=delay_ms)


def accept(
    world: World,
    each: Execution,
    waitpoint: Waitpoint,
    signal: Received,
    *,
    key: str | None,
    delay_ms: int | None,
) -> SignalAccepted | SignalDuplicate:
    if each.lifecycle_phase == "terminal":
        raise TargetNotSignalable(each.execution_id, each.public_state)
    late = waitpoint.expires_at_ms is not None and waitpoint.expires_at_ms <= world.now_ms
    if waitpoint.state == "closed" or (waitpoint.state == "pending" and late):
        raise WaitpointClosed(waitpoint.waitpoint_id)
    kept = waitpoint.keys.get(key or "")
    if kept is not None and kept[1] > world.now_ms:
        return SignalDuplicate(existing_signal_id=kept[0])
    if key is not None:
        waitpoint.keys[key] = (signal.signal_id, world.now_ms + DAY_MS)
    waitpoint.signals = [*waitpoint.signals, signal]
    if waitpoint.state == "pending":
        return SignalAccepted(
            signal_id=signal.signal_id, effect=SignalEffect.BUFFERED_FOR_PENDING_WAITPOINT
        )
    suspension = each.suspension
    assert suspension is not None
    signals: Signals = {}
    for one in each.waitpoints.values():
        if one.state == "active" or one.suspension_id == suspension.suspension_id:
            signals.setdefault(one.waitpoint_key, []).extend(one.signals)
    match = match_of(suspension.condition, waitpoint.waitpoint_key, signals)
    effect = SignalEffect.APPENDED_TO_WAITPOINT
    if holds(suspension.condition, signals):
        effect = SignalEffect.RESUME_CONDITION_SATISFIED
        wait = suspension.delay_ms if delay_ms is None else delay_ms
        resume(world, each, wait, found(suspension.condition, signals))
    return SignalAccepted(signal_id=signal.signal_id, effect=effect, match=match)


def close_waitpoint(
    world: World, execution_id: ExecutionId, waitpoint_id: UUID, reason: str
) -> ClosedWaitpoint:
    each = world.executions.get(execution_id)
    waitpoint = None if each is None else each.waitpoints.get(waitpoint_id)
    if each is None or waitpoint is None:
        raise NotFound("waitpoint", waitpoint_id)
    before = waitpoint.state == "closed"
    suspension = each.suspension
    awaited = waitpoint.state == "active" and suspension is not None and suspension.keeps
    if not before:
        waitpoint.close(world.now_ms, reason)
    if awaited:
        resume(world, each, 0, None, why="waitpoint_closed")
    return ClosedWaitpoint(
        execution_id=execution_id,
        waitpoint_id=waitpoint_id,
        close_reason=waitpoint.close_reason or reason,
        repeated=before,
        resumed=awaited,
    )


# What lets a suspended execution go on.


def resume(
    world: World,
    each: Execution,
    delay_ms: int,
    satisfiers: Sequence[Received] | None,
    *,
    why: str = "resumed",
    tells: bool = True,
) -> None:
    suspension = each.suspension
    assert suspension is not None
    each.lifecycle_phase, each.resume_pending = "runnable", not each.flow_cancelled
    each.blocking_detail = None
    if each.flow_cancelled:
        each.waits("blocked_by_operator", "paused_by_flow_cancel")
    elif delay_ms > 0:
        each.waits("not_eligible_until_time", "waiting_for_resume_delay")
        each.delay_until_ms = world.now_ms + delay_ms
    else:
        each.waits("eligible_now", "waiting_for_worker")
    world.touch(each)
    suspension.close(world.now_ms, why)
    suspension.satisfiers = [one.line for one in satisfiers or ()]
    if satisfiers is not None:
        suspension.satisfied_at_ms = world.now_ms
    for one in each.waitpoints.values():
        if not suspension.keeps:
            one.close(world.now_ms, why)
        elif one.state == "active":
            one.state, one.suspension_id, one.activated_at_ms = "pending", None, None
    if each.resume_pending and tells:
        world.tell_resumable(each)


def resume_execution(world: World, execution_id: ExecutionId, *, delay_ms: int) -> Resumed:
    each = world.executions.get(execution_id)
    if each is None:
        raise NotFound("execution", execution_id)
    if each.lifecycle_phase != "suspended":
        raise ExecutionNotSuspended(execution_id, each.public_state)
    resume(world, each, delay_ms, None, tells=False)
    return Resumed(execution_id=execution_id, public_state=each.state)


def wake_execution(world: World, execution_id: ExecutionId) -> Woken:
    each = world.executions.get(execution_id)
    if each is None:
        raise NotFound("execution", execution_id)
    if each.eligibility_state != "not_eligible_until_time":
        raise ExecutionNotEligible(execution_id, each.public_state, wanted="delayed")
    each.waits("eligible_now", "waiting_for_worker")
    each.delay_until_ms, each.blocking_detail = None, None
    world.touch(each)
    return Woken(execution_id=execution_id, public_state=each.state)


def is_due(world: World, each: Execution) -> bool:
    suspension = each.suspension
    due = None if suspension is None else suspension.timeout_at_ms
    return each.lifecycle_phase == "suspended" and due is not None and due <= world.now_ms


def time_out(world: World, each: Execution) -> str:
    """The timeout of the suspension is applied; the behaviour."""
    suspension = each.suspension
    assert suspension is not None
    behavior = suspension.behavior
    if behavior in ENDINGS:
        outcome, reason = ENDINGS[behavior]
        by = "suspension_timeout"
        why = f"timed_out_{behavior}"
        world.terminalize(
            [each], outcome, reason=reason, category="timeout", by=by, close_reason=why
        )
        each.cancellation_reason = f"suspension_timeout_{behavior}"
    elif behavior == "escalate":
        suspension.reason_code, suspension.timeout_at_ms = "waiting_for_operator_review", None
        suspension.behavior, each.blocking_reason = "fail", "paused_by_operator"
        world.touch(each)
    else:
        signal = Received(UUID(int=0), "timeout", "suspension_timeout", world.now_ms)
        resume(world, each, 0, [signal], why="timed_out_auto_resume")
    return behavior


def expire_suspension(world: World, execution_id: ExecutionId) -> Any:
    each = world.executions.get(execution_id)
    if each is None:
        raise NotFound("execution", execution_id)
    if is_due(world, each):
        applied = TimeoutBehavior(time_out(world, each))
        return SuspensionExpired(execution_id=execution_id, behavior_applied=applied)
    suspended = each.lifecycle_phase == "suspended"
    reason = "timeout_not_due" if suspended else f"execution_is_{each.public_state}"
    return SuspensionNotExpired(execution_id=execution_id, reason=reason)


def expire_suspensions(world: World) -> int:
    due = [each for each in world.executions.values() if is_due(world, each)]
    for each in due:
        time_out(world, each)
    return len(due)


def expire_pending_waitpoints(world: World) -> int:
    due = [
        one
        for each in world.executions.values()
        for one in each.waitpoints.values()
        if one.state == "pending"
        and one.expires_at_ms is not None
        and one.expires_at_ms <= world.now_ms
    ]
    for one in due:
        one.close(world.now_ms, "never_committed")
    return len(due)
