"""An execution over time: when it waited, ran, was suspended, and each of its attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final

import msgspec

from flowfabric.engine.events.read_history import HistoryEntry
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.engine.executions.list_attempts import Attempt
from flowfabric.engine.journal.list_steps import RecordedStep
from flowfabric.states import AttemptOutcome, AttemptType

WIDTH: Final = 1000.0
_LEAST: Final = 3.0
_FIRST, _LAST = 5, 30
_AFTER: Final = {
    "suspended": "suspended",
    "waiting_children": "children",
    "retry": "backoff",
    "delay": "delayed",
}
"""What an execution does after its lease ended for this reason; it waits after any other."""
HUES: Final = {
    "running": "blue",
    "waiting": "grey",
    "backoff": "amber",
    "delayed": "amber",
    "suspended": "violet",
    "children": "teal",
}
OUTCOME_HUES: Final = {
    AttemptOutcome.SUCCESS: "green",
    AttemptOutcome.FAILED: "red",
    AttemptOutcome.RETRY: "amber",
    AttemptOutcome.CANCELLED: "brown",
    AttemptOutcome.EXPIRED: "red",
    AttemptOutcome.SKIPPED: "grey",
    AttemptOutcome.SUSPENDED: "violet",
    AttemptOutcome.WAITING_CHILDREN: "teal",
}


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the time; `x` and `width` are of 1,000."""

    what: str
    hue: str
    x: float
    width: float
    begin: datetime
    end: datetime
    seconds: float


class TimeMark(msgspec.Struct, frozen=True, kw_only=True):
    """A moment: an operator acted, a lease was lost, a signal came, a durable call was made."""

    what: str
    x: float
    at: datetime
    hue: str


class AttemptBar(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt with its place in time."""

    attempt: Attempt
    x: float
    width: float
    hue: str
    ran: float
    after: float | None = None
    """Where the attempt before it ended, if this one is its retry."""
    pause: float = 0.0
    """Seconds from that end to the beginning of this attempt."""


class Strip(msgspec.Struct, frozen=True, kw_only=True):
    """The whole time of an execution."""

    begin: datetime
    end: datetime
    segments: list[Segment]
    marks: list[TimeMark]
    attempts: list[AttemptBar]
    left_out: int
    """Attempts in the middle that are not listed."""

    def total(self, what: str) -> float:
        """Seconds that it spent so."""
        return sum(each.seconds for each in self.segments if each.what == what)

    @property
    def totals(self) -> list[tuple[str, str, float]]:
        """How long it spent with what, with the colour."""
        words = dict.fromkeys(each.what for each in self.segments)
        return [(what, HUES[what], self.total(what)) for what in words]


def strip_of(
    found: ExecutionSnapshot,
    attempts: Sequence[Attempt],
    history: Sequence[HistoryEntry],
    now: datetime,
    steps: Sequence[RecordedStep] = (),
) -> Strip:
    """Compute the strip from what the outboxes, the attempts and the journal say."""
    begin = found.created_at
    end = max(found.terminal_at or now, begin)
    span = max((end - begin).total_seconds(), 0.001)

    def place(at: datetime) -> float:
        return min(WIDTH, max(0.0, (at - begin).total_seconds() / span * WIDTH))

    pieces = _pieces(found, history, end)
    segments = [
        Segment(
            what=what,
            hue=HUES[what],
            x=round(place(since), 1),
            width=round(max(place(until) - place(since), _LEAST), 1),
            begin=since,
            end=until,
            seconds=(until - since).total_seconds(),
        )
        for what, since, until in pieces
    ]
    bars = [_bar(each, end, place) for each in attempts]
    bars = [*bars[:1], *(_retried(one, other) for one, other in pairwise(bars))]
    left_out = max(0, len(bars) - _FIRST - _LAST) if len(bars) > 40 else 0
    if left_out:
        bars = [*bars[:_FIRST], *bars[-_LAST:]]
    return Strip(
        begin=begin,
        end=end,
        segments=segments,
        marks=_marks(history, steps, place),
        attempts=bars,
        left_out=left_out,
    )


def _pieces(
    found: ExecutionSnapshot, history: Sequence[HistoryEntry], end: datetime
) -> list[tuple[str, datetime, datetime]]:
    """What it did from when to when, without overlap, in order."""
    pieces: list[tuple[str, datetime, datetime]] = []
    delayed = found.started_at is None and found.delay_until is not None
    what, since = "delayed" if delayed else "waiting", found.created_at
    for entry in history:
        after = _next(entry)
        if after is None or after == what:
            continue
        at = min(max(entry.at, since), end)
        if at > since:
            pieces.append((what, since, at))
        what, since = after, at
    open_or_running = found.terminal_at is None or what == "running"
    if open_or_running and end > since:
        pieces.append((what, since, end))
    return pieces


def _next(entry: HistoryEntry) -> str | None:
    """What the execution does from this event on; None if that stays as it is."""
    if entry.outbox == "lease":
        if entry.what in ("acquired", "reclaimed"):
            return "running"
        if entry.what in ("released", "revoked", "expired"):
            return _AFTER.get(entry.reason or "", "waiting")
    if entry.outbox == "completion" and entry.what == "resumable":
        return "waiting"
    return None


def _bar(attempt: Attempt, end: datetime, place: Callable[[datetime], float]) -> AttemptBar:
    ended = attempt.ended_at or end
    x = place(attempt.started_at)
    hue = "blue" if attempt.outcome is None else OUTCOME_HUES.get(attempt.outcome, "grey")
    return AttemptBar(
        attempt=attempt,
        x=round(min(x, WIDTH - _LEAST), 1),
        width=round(max(place(ended) - x, _LEAST), 1),
        hue=hue,
        ran=max(0.0, (ended - attempt.started_at).total_seconds()),
    )


def _retried(before: AttemptBar, bar: AttemptBar) -> AttemptBar:
    """The bar with the way from the attempt before it, if it is the retry of that one."""
    ended, is_next = before.attempt.ended_at, bar.attempt.attempt_type is AttemptType.RETRY
    if ended is None or not is_next:
        return bar
    pause = max(0.0, (bar.attempt.started_at - ended).total_seconds())
    return msgspec.structs.replace(bar, after=round(before.x + before.width, 1), pause=pause)


def _marks(
    history: Sequence[HistoryEntry],
    steps: Sequence[RecordedStep],
    place: Callable[[datetime], float],
) -> list[TimeMark]:
    """The newest moments, in their order."""
    marks = [
        TimeMark(
            what=f"{each.kind} {each.key}",
            x=round(place(each.started_at), 1),
            at=each.started_at,
            hue="ink",
        )
        for each in steps
    ]
    for entry in history:
        x = round(place(entry.at), 1)
        if entry.outbox == "operator":
            marks.append(
                TimeMark(what=f"{entry.what} by {entry.by}", x=x, at=entry.at, hue="violet")
            )
        elif entry.outbox == "signal":
            marks.append(
                TimeMark(
                    what=f"signal {entry.details.get('signal_name', '')}",
                    x=x,
                    at=entry.at,
                    hue="teal",
                )
            )
        elif entry.outbox == "lease" and entry.what == "expired":
            marks.append(TimeMark(what="lease lost", x=x, at=entry.at, hue="red"))
    return sorted(marks, key=lambda each: each.at)[-60:]
