"""How the attempts of this worker ended, counted when their outcome is recorded.

Attempts that time out are counted by the operation that ends them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final, Literal

from flowfabric.counters import ATTEMPT_OUTCOMES
from flowfabric.engine.lifecycle.cancel import Cancellation
from flowfabric.engine.lifecycle.complete import Completed, Completion
from flowfabric.engine.lifecycle.fail import RetryScheduled, TerminalFailed
from flowfabric.worker.running_attempt import RunningAttempt, was_cancelled

AttemptOutcome = Literal["ok", "error", "cancelled", "retry"]
_COMPLETED: Final = {Completed}
_attempt: Final = itemgetter(0)
_lane_of: Final = attrgetter("claimed.lane_id")
_OF_ANSWER: Final[dict[type, AttemptOutcome]] = {RetryScheduled: "retry", TerminalFailed: "error"}


def count_outcome(attempt: RunningAttempt, outcome: AttemptOutcome) -> None:
    """One more attempt of its lane has ended so."""
    ATTEMPT_OUTCOMES.add(attempt.claimed.lane_id, outcome)


def count_outcomes(
    entries: Sequence[tuple[RunningAttempt, object, object]], answers: Sequence[Any]
) -> None:
    """The attempts of a batch have ended as the engine answers; others are not counted.

    An execution that is delayed or released has not ended an attempt. One refusal is counted: that
    of an execution which was cancelled meanwhile.
    """
    if set(map(type, answers)) == _COMPLETED:  # as nearly every batch, and the largest ones
        for lane, count in Counter(map(_lane_of, map(_attempt, entries))).items():
            ATTEMPT_OUTCOMES.add(lane, "ok", count=count)
    else:
        ATTEMPT_OUTCOMES.add_all(_labels(entries, answers))


def _labels(
    entries: Sequence[tuple[RunningAttempt, object, object]], answers: Sequence[Any]
) -> Iterable[tuple[str, str]]:
    for (attempt, outcome, _), answer in zip(entries, answers, strict=True):
        if isinstance(answer, Exception):
            if was_cancelled(answer):
                yield attempt.claimed.lane_id, "cancelled"
        elif type(outcome) is Completion:
            yield attempt.claimed.lane_id, "ok"
        elif type(outcome) is Cancellation:
            yield attempt.claimed.lane_id, "cancelled"
        elif type(answer) in _OF_ANSWER:
            yield attempt.claimed.lane_id, _OF_ANSWER[type(answer)]
