"""Log records about attempts that did not succeed: one for each, on the logger `flowfabric.worker`.

Besides its message a record has the fields of `AttemptRecord` as attributes, for formatters that
print fields.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.ids import ExecutionId, clean_text

log: Final = logging.getLogger("flowfabric.worker")
_LONGEST_REASON: Final = 500


class AttemptRecord(msgspec.Struct, kw_only=True):
    """What a record says of the attempt; a field that is not known is None."""

    event: str
    """What happened: `attempt_failed`, `attempt_timed_out`, `lease_lost`, `lease_expired` …"""
    execution_id: ExecutionId
    kind: str
    attempt_index: int
    flow_id: UUID | None = None
    """The flow that the execution is a member of."""
    max_attempts: int | None = None
    """How many attempts there are if each of them fails."""
    worker: str | None = None
    error_type: str | None = None
    error: str | None = None
    category: str | None = None
    next_try_at: datetime | None = None

    @property
    def attempt(self) -> str:
        """`charge {fp:7}:… attempt 2 of 4`; attempts are counted from 1 for people."""
        of = "" if self.max_attempts is None else f" of {self.max_attempts}"
        return f"{self.kind} {self.execution_id} attempt {self.attempt_index + 1}{of}"

    @property
    def why(self) -> str:
        """The category, unless it says nothing, and the error, on one line."""
        category = _printable(self.category)
        text = " ".join((_printable(self.error) or "").split())
        if len(text) > _LONGEST_REASON:
            text = f"{text[:_LONGEST_REASON]}…"
        shown = "" if category in (None, "handler_error", "retry") else f" ({category})"
        return f"{shown}: {text}" if text else shown

    @property
    def next_try(self) -> str:
        """When the next attempt may begin."""
        return "at once" if self.next_try_at is None else _until(self.next_try_at)


def log_attempt(
    level: int,
    message: LiteralString,
    *args: object,
    record: AttemptRecord,
    error: BaseException | None = None,
    traceback: str | None = None,
) -> None:
    """Write one record, if its level is wanted; `traceback` is the text that handlers print."""
    if not log.isEnabledFor(level):
        return
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  as the standard library does
    made = log.makeRecord(
        log.name,
        level,
        frame.f_code.co_filename,
        frame.f_lineno,
        message,
        args,
        None if error is None else (type(error), error, error.__traceback__),
        frame.f_code.co_name,
        fields_of(record),
    )
    made.exc_text = _printable(traceback)  # handlers format it only if there is none
    log.handle(made)


def fields_of(record: AttemptRecord) -> dict[str, object]:
    """The attributes of a log record: those that are known."""
    fields: dict[str, object] = {
        "event": record.event,
        "execution_id": str(record.execution_id),
        "kind": record.kind,
        "attempt": record.attempt_index + 1,
        "flow_id": None if record.flow_id is None else str(record.flow_id),
        "max_attempts": record.max_attempts,
        "worker": record.worker,
        "error_type": record.error_type,
        "error": _printable(record.error),
        "category": _printable(record.category),
        "next_try_at": None if record.next_try_at is None else record.next_try_at.isoformat(),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _printable(text: str | None) -> str | None:
    """The text as it is stored: one with a lone surrogate cannot be written to a stream."""
    return None if text is None else clean_text(text)


def _until(moment: datetime) -> str:
    """`in 5.0 s (14:03:12)`, as the clock of this machine shows it."""
    clock = f"{moment.astimezone():%H:%M:%S}"
    seconds = (moment - datetime.now(UTC)).total_seconds()
    return f"in {_span(seconds)} ({clock})" if seconds > 0 else f"at {clock}"


def _span(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
