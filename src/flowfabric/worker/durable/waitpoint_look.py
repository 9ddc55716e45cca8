"""What waitpoints of a handler have received, and whether more can come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from flowfabric.conditions import Condition, Signal, is_satisfied, keys_of, remaining, satisfiers
from flowfabric.engine.suspensions.expire_pending_waitpoints import NEVER_COMMITTED
from flowfabric.instants import epoch_ms, instant
from flowfabric.states import WaitpointState
from flowfabric.worker.repeat_while_leased import repeat_while_leased

if TYPE_CHECKING:
    from flowfabric.engine.suspensions.waitpoint import Waitpoint
    from flowfabric.worker.durable.durable import Durable
    from flowfabric.worker.durable.waitpoints import WaitpointCondition

RESUMED: Final = "resumed"
"""Why a waitpoint is closed whose handler has what it waited for."""
_NOT_OPERATORS: Final = (RESUMED, NEVER_COMMITTED)
"""Why waitpoints of handlers are closed that no operator closed: used up, or expired."""


class WaitpointLook(msgspec.Struct, frozen=True):
    """What waitpoints have received, and what can still come."""

    satisfied_by: list[Signal] | None = None
    """The signals that satisfy the condition; None while they do not."""
    is_hopeless: bool = False
    """Can the condition not be satisfied any more, because waitpoints take no more signals?"""
    closed: str | None = None
    """Why an operator closed such a waitpoint; None if none did."""
    closes_ms: int | None = None
    """When it will be hopeless."""
    remaining: Condition | None = None
    """What is still waited for; None if it is hopeless."""
    waitpoints: tuple[UUID, ...] = ()
    """The waitpoints on which that can come."""


async def look_at(
    durable: Durable, wanted: WaitpointCondition, due_ms: int | None
) -> WaitpointLook:
    """Look at the waitpoints of a condition: signals that came after `due_ms` do not count."""
    engine, attempt = durable.services.engine, durable.attempt
    now_ms = durable.journal.now_ms
    with durable.parking.busy():
        found = await repeat_while_leased(
            attempt, lambda: engine.read_waitpoints(attempt.execution_id, list(wanted.ids))
        )
    due = None if due_ms is None else instant(due_ms)
    signals = {
        each.waitpoint_key: [
            signal for signal in each.signals if due is None or signal.accepted_at <= due
        ]
        for each in found.values()
    }
    condition = wanted.condition
    if is_satisfied(condition, signals):
        return WaitpointLook(satisfiers(condition, signals))
    left = remaining(condition, signals)
    open_ = [each for each in found.values() if each.waitpoint_key in keys_of(left)]
    closes = [
        None if each.expires_at is None else epoch_ms(each.expires_at)
        for each in open_
        if each.state is not WaitpointState.CLOSED
    ]
    closes_ms = first_of(*closes)
    if len(closes) < len(keys_of(left)) or (closes_ms is not None and closes_ms <= now_ms):
        return WaitpointLook(is_hopeless=True, closed=_closed_by_operator(open_))
    return WaitpointLook(
        closes_ms=closes_ms, remaining=left, waitpoints=tuple(each.waitpoint_id for each in open_)
    )


def _closed_by_operator(waitpoints: Sequence[Waitpoint]) -> str | None:
    """Why an operator closed the first of these that one closed."""
    reasons = (each.close_reason for each in waitpoints)
    return next((each for each in reasons if each is not None and each not in _NOT_OPERATORS), None)


def first_of(*instants: int | None) -> int | None:
    """The first of these instants; None is never."""
    return min((each for each in instants if each is not None), default=None)
