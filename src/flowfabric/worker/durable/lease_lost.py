"""The engine refuses a call of an attempt, because its lease is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from flowfabric.errors import ExecutionNotActive, LeaseExpired, LeaseLost, NotFound, StaleLease

if TYPE_CHECKING:
    from flowfabric.worker.running_attempt import RunningAttempt

REFUSED: Final = (NotFound, ExecutionNotActive, StaleLease, LeaseExpired)
"""The answers of the engine to a caller that does not hold the lease."""


def lease_lost(attempt: RunningAttempt, refusal: Exception) -> NoReturn:
    """The engine refused a call of the attempt: its handler must stop."""
    attempt.lost = True
    if attempt.on_lost is not None:
        attempt.on_lost.set()
    raise LeaseLost(str(refusal)) from refusal
