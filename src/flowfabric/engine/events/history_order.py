"""The order of one execution's events: outboxes are merged by what can follow what.

The clock decides only where nothing else does: it may have been set back in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final

import msgspec

from flowfabric.states import (
    CompletionOutcome,
    LeaseEventReason,
    LeaseEventType,
    OperatorEventType,
    SignalEffect,
)

ENDING: Final = frozenset(
    {OperatorEventType.CANCELLED, OperatorEventType.COMPLETED, OperatorEventType.FAILED}
)
"""What an operator does that ends the execution."""
BEGINNING: Final = frozenset({LeaseEventType.ACQUIRED, LeaseEventType.RECLAIMED})


class HistoryRow(msgspec.Struct, frozen=True):
    """One event, of any outbox, or the submit (`execution`)."""

    occurred_at_ms: int
    outbox: str
    what: str
    reason: str | None
    by: str | None
    attempt_index: int | None
    lease_epoch: int | None
    details: str | None
    event_id: int

    @property
    def epoch(self) -> int:
        return self.lease_epoch or 0


class HistoryState(IntEnum):
    """What the events so far say of the execution, as far as it decides what can follow."""

    OPEN = 0
    ENDED = 1
    SUSPENDED = 2
    RESUMING = 3
    """A signal has satisfied the condition: the event of the resume is next."""


class HistoryOrder:
    """Merges the outboxes, each in the order of its ids.

    An action of an operator follows the leases up to the epoch that it left behind, and a signal
    those up to the epoch that it met. An execution ends once, after its leases, and an action that
    ends it is recorded after its completion; only a replay lets it go on. The event of a resume
    comes before the next lease, and after the signal that caused it; an operator who resumes an
    execution leaves an action alone. What happens while a lease is held is placed by the clock.
    """

    def __init__(self, rows: Sequence[HistoryRow], state: HistoryState) -> None:
        self.state = state
        self._submits = _of("execution", rows)
        self._leases = _of("lease", rows)
        self._completions = _of("completion", rows)
        self._operators = _of("operator", rows)
        self._signals = _of("signal", rows)

    def __iter__(self) -> Iterator[tuple[HistoryRow, HistoryState]]:
        """Each event, with the state after it."""
        yield from ((row, self.state) for row in self._submits)
        while (row := self._next()) is not None:
            yield row, self.state

    def _next(self) -> HistoryRow | None:
        action = self._next_action()
        lease = self._leases[0] if self._leases else None
        if lease is not None and (action is None or _precedes(lease, action[0])):
            if lease.what in BEGINNING and self._was_resumed():
                return self._complete()
            suspends = (lease.what, lease.reason) == (
                LeaseEventType.REVOKED,
                LeaseEventReason.SUSPENDED,
            )
            if self.state is not HistoryState.ENDED:
                self.state = HistoryState.SUSPENDED if suspends else HistoryState.OPEN
            return self._leases.popleft()
        if action is None:
            return self._complete() if self._completions else None
        row, queue = action
        if self._was_resumed() and self._resumed_before(row):
            return self._complete()
        if row.outbox == "signal":
            if row.what == SignalEffect.RESUME_CONDITION_SATISFIED:
                self.state = HistoryState.RESUMING
        else:
            replays = row.what == OperatorEventType.REPLAYED
            if (replays or row.what in ENDING) and self._ends_next():
                return self._complete()
            if replays or row.what == OperatorEventType.RESUMED:
                self.state = HistoryState.OPEN
        return queue.popleft()

    def _next_action(self) -> tuple[HistoryRow, deque[HistoryRow]] | None:
        """The next signal or action of an operator."""
        queues = [queue for queue in (self._signals, self._operators) if queue]
        if not queues:
            return None
        first = min(queues, key=lambda queue: _rank(queue[0]))
        return first[0], first

    def _was_resumed(self) -> bool:
        """Is the execution suspended or resuming, and the next completion that of the resume?"""
        waits = self.state in (HistoryState.SUSPENDED, HistoryState.RESUMING)
        return waits and self._next_is_resume()

    def _resumed_before(self, row: HistoryRow) -> bool:
        """Did the resume come before this signal or action?"""
        if self.state is HistoryState.RESUMING:
            return True
        if row.what == OperatorEventType.RESUMED:
            return False  # this is the resume; the event is that of a later one
        if row.outbox == "operator" and row.what in (OperatorEventType.REPLAYED, *ENDING):
            return True
        causes = row.what == SignalEffect.RESUME_CONDITION_SATISFIED
        return not causes and self._completions[0].occurred_at_ms < row.occurred_at_ms

    def _next_is_resume(self) -> bool:
        completions = self._completions
        return bool(completions) and completions[0].what == CompletionOutcome.RESUMABLE

    def _ends_next(self) -> bool:
        ended = self.state is HistoryState.ENDED
        return bool(self._completions) and not ended and not self._next_is_resume()

    def _complete(self) -> HistoryRow:
        row = self._completions.popleft()
        resumes = row.what == CompletionOutcome.RESUMABLE
        self.state = HistoryState.OPEN if resumes else HistoryState.ENDED
        return row


def _rank(action: HistoryRow) -> tuple[int, int, int]:
    """Signals and actions come by epoch, which a replay begins and an end closes; then by time."""
    place = 1
    if action.outbox == "operator" and action.what == OperatorEventType.REPLAYED:
        place = 0
    elif action.outbox == "operator" and action.what in ENDING:
        place = 2
    return action.epoch, place, action.occurred_at_ms


def _precedes(lease: HistoryRow, action: HistoryRow) -> bool:
    """Does the event of a lease come before a signal or an action of an operator?"""
    resumes = action.what == SignalEffect.RESUME_CONDITION_SATISFIED  # so the lease had ended
    changes = action.outbox == "operator" and action.what != OperatorEventType.WAITPOINT_CLOSED
    if changes or resumes or lease.epoch != action.epoch:
        return lease.epoch <= action.epoch
    return lease.what in BEGINNING or lease.occurred_at_ms <= action.occurred_at_ms


def _of(outbox: str, rows: Sequence[HistoryRow]) -> deque[HistoryRow]:
    return deque(row for row in rows if row.outbox == outbox)
