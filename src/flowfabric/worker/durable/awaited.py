"""What a handler waits for, and how that is asked of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from flowfabric.conditions import AnyCondition, Condition, OperatorOnly, TimeoutOnly
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.suspensions.suspension import SuspendRequest, UsePending
from flowfabric.ids import GroupId
from flowfabric.instants import instant
from flowfabric.states import SuspensionReason, TimeoutBehavior


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """What one branch of a handler waits for: any of these."""

    detail: str
    """In words, for `explain`."""
    due_ms: int | None = None
    signals: tuple[str, ...] = ()
    joins: tuple[GroupId, ...] = ()
    waitpoints: tuple[UUID, ...] = ()
    condition: Condition | None = None
    on_timeout: TimeoutBehavior = TimeoutBehavior.AUTO_RESUME
    reason: SuspensionReason = SuspensionReason.WAITING_FOR_SIGNAL

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions on waitpoints, any of which is waited for."""
        if isinstance(self.condition, AnyCondition):
            return self.condition.members
        return () if self.condition is None else (self.condition,)

    @property
    def is_timer(self) -> bool:
        """Is it time alone that is waited for?"""
        return self.due_ms is not None and not (self.signals or self.joins or self.waitpoints)


def earliest(waits: Sequence[Awaited]) -> int | None:
    """When the first of the waits is due."""
    return min((each.due_ms for each in waits if each.due_ms is not None), default=None)


def detail_of(waits: Sequence[Awaited]) -> str:
    """What is waited for, in words."""
    return "; ".join(dict.fromkeys(each.detail for each in waits))


def suspend_request(
    lease: Lease, waits: Sequence[Awaited], signals_read: int | None
) -> SuspendRequest:
    """The suspension of an attempt that waits for any of these.

    Only a wait that is alone decides what its timeout does; otherwise the handler runs again.
    """
    due = earliest(waits)
    conditions = tuple(member for each in waits for member in each.conditions)
    condition: Condition = TimeoutOnly() if due is not None else OperatorOnly()
    if conditions:
        condition = AnyCondition(members=conditions)
    signals = tuple(dict.fromkeys(name for each in waits for name in each.signals))
    waitpoints = dict.fromkeys(each for wait in waits for each in wait.waitpoints)
    return SuspendRequest(
        lease=lease,
        bindings=tuple(UsePending(waitpoint_id=each) for each in waitpoints),
        condition=condition,
        reason=_reason(waits),
        timeout_at=None if due is None else instant(due),
        timeout_behavior=waits[0].on_timeout if len(waits) == 1 else TimeoutBehavior.AUTO_RESUME,
        detail=detail_of(waits),
        keeps_waitpoints=True,
        awaits_signals=signals,
        signals_read=signals_read if signals else None,
        awaits_joins=tuple(join.uuid for each in waits for join in each.joins),
    )


def _reason(waits: Sequence[Awaited]) -> SuspensionReason:
    """That of the first; an escalation to an operator comes before all others."""
    review = SuspensionReason.WAITING_FOR_OPERATOR_REVIEW
    return review if any(each.reason is review for each in waits) else waits[0].reason
