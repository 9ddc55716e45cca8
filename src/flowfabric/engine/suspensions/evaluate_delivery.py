"""What a signal does on its waitpoint, or why the waitpoint does not take it; pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from flowfabric.conditions import (
    Match,
    counted_signals,
    decode_condition,
    is_satisfied,
    match_of_last,
    satisfiers,
)
from flowfabric.engine.suspensions.delivery import Delivery
from flowfabric.engine.suspensions.waitpoint import StoredSignal, decode_signals
from flowfabric.errors import EngineError, TargetNotSignalable, ValidationError, WaitpointClosed
from flowfabric.ids import ExecutionId
from flowfabric.states import LifecyclePhase, SignalEffect, WaitpointState

MAX_PAYLOAD: Final = 65_536


class LockedWaitpoint(msgspec.Struct, frozen=True):
    """The waitpoint that is signalled, or another one of the same suspension, under its lock."""

    waitpoint_id: UUID
    waitpoint_key: str
    state: str
    expired: bool
    """Is it pending, and its time over?"""
    kept: int
    """How many signals it keeps."""
    signals: str | None
    """The signals, if it is active."""
    condition: str | None
    """The condition of the open suspension of the execution, if there is one."""
    resume_delay_ms: int | None
    lifecycle_phase: str
    ended_as: str
    max_signals: int
    """How many signals the policy of the execution allows; 0 means any number."""
    recorded: int
    """How many signals the execution has received."""
    existing_signal_id: UUID | None
    """The signal that had the same idempotency key."""
    now_ms: int


class Evaluated(msgspec.Struct, frozen=True, kw_only=True):
    """What the signal does; `dropped` are the places of kept signals that go, the new one last."""

    effect: SignalEffect
    dropped: Sequence[int] = ()
    match: Match | None = None
    satisfiers: Sequence[StoredSignal] = ()


def refusal(
    execution_id: ExecutionId, waitpoint: LockedWaitpoint, delivery: Delivery
) -> EngineError | None:
    """The first that applies: ended, closed, payload too large, too many signals; else None."""
    if waitpoint.lifecycle_phase == LifecyclePhase.TERMINAL:
        return TargetNotSignalable(execution_id, waitpoint.ended_as)
    if waitpoint.state == WaitpointState.CLOSED or waitpoint.expired:
        return WaitpointClosed(waitpoint.waitpoint_id)
    if delivery.payload_size > MAX_PAYLOAD:
        why = f"payload of {delivery.payload_size} bytes must have at most {MAX_PAYLOAD}"
        return ValidationError("payload_too_large", why, field="payload")
    most = waitpoint.max_signals if delivery.max_signals is None else delivery.max_signals
    if 0 < most <= waitpoint.recorded:
        had = f"execution {execution_id} has had {waitpoint.recorded} signals"
        return ValidationError("signal_limit_exceeded", f"{had} of at most {most}")
    return None


def evaluate_delivery(
    waitpoint: LockedWaitpoint,
    others: Sequence[LockedWaitpoint],
    signal: StoredSignal,
    *,
    signal_maxlen: int,
) -> Evaluated:
    """What the signal does on a waitpoint that is pending, or that an open suspension waits for."""
    too_many = max(waitpoint.kept + 1 - signal_maxlen, 0)
    if waitpoint.state == WaitpointState.PENDING:
        buffered = SignalEffect.BUFFERED_FOR_PENDING_WAITPOINT
        return Evaluated(effect=buffered, dropped=range(too_many))
    own = [*decode_signals(waitpoint.signals), signal]
    if waitpoint.condition is None:
        return Evaluated(effect=SignalEffect.APPENDED_TO_WAITPOINT, dropped=range(too_many))
    signals: dict[str, list[StoredSignal]] = {}
    for other in others:
        signals.setdefault(other.waitpoint_key, []).extend(decode_signals(other.signals))
    signals.setdefault(waitpoint.waitpoint_key, []).extend(own)
    condition = decode_condition(waitpoint.condition)
    counted = {id(each) for each in counted_signals(condition, signals)}
    effect = SignalEffect.APPENDED_TO_WAITPOINT
    if is_satisfied(condition, signals):
        effect = SignalEffect.RESUME_CONDITION_SATISFIED
    return Evaluated(
        effect=effect,
        dropped=[at for at, each in enumerate(own) if id(each) not in counted][:too_many],
        match=match_of_last(condition, waitpoint.waitpoint_key, signals),
        satisfiers=satisfiers(condition, signals),
    )
