"""Why an execution expired or an attempt was ended, in words: the stored reason is a code."""

from __future__ import annotations

from typing import Final

from flowfabric.instants import instant

ATTEMPT_TIMEOUT: Final = "attempt_timeout"
EXECUTION_DEADLINE: Final = "execution_deadline"

EXPIRED_REMEDY: Final = {
    ATTEMPT_TIMEOUT: "raise timeout= of the task",
    EXECUTION_DEADLINE: "raise deadline= of the task or the call",
}


def expired_text(
    reason: str | None, *, timeout_ms: int | None = None, deadline_at_ms: int | None = None
) -> str:
    """The reason, with the limit that was exceeded as far as it is known; others as they are."""
    match reason:
        case "attempt_timeout":
            limit = "" if timeout_ms is None else f" of {timeout_ms / 1000:g} s"
            return f"{reason}: the attempt exceeded its timeout{limit}"
        case "execution_deadline":
            at = instant(deadline_at_ms)
            limit = "" if at is None else f", {at:%Y-%m-%d %H:%M:%S} UTC,"
            return f"{reason}: its deadline{limit} passed"
        case _:
            return str(reason)
