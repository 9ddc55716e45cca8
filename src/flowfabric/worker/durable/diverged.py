"""What becomes of an attempt whose handler made other calls than before."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from flowfabric.counters import DIVERGENCES
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.errors import FlowFabricError, LeaseLost
from flowfabric.states import FailureClass
from flowfabric.worker.durable.settings import OnDivergence

if TYPE_CHECKING:
    from flowfabric.worker.durable.durable import Durable

log: Final = logging.getLogger("flowfabric.worker")
CATEGORY: Final = "non_deterministic_replay"


class _Unless:
    """What becomes of executions whose task does not say it."""

    given: OnDivergence = "suspend"


@contextlib.contextmanager
def unless_given(answer: OnDivergence) -> Generator[None]:
    """While the block runs, this becomes of executions whose task does not say it: for tests."""
    before, _Unless.given = _Unless.given, answer
    try:
        yield
    finally:
        _Unless.given = before


async def diverged(durable: Durable) -> Failure | None:
    """The attempt waits for an operator, uncounted; or its failure, if the task says so."""
    attempt, error = durable.attempt, durable.journal.divergence
    if attempt.lost or attempt.suspended:
        return None
    log.error("%s diverged: %s", attempt, error)
    DIVERGENCES.add(attempt.claimed.execution_kind)
    if (durable.settings.on_divergence or _Unless.given) == "fail":
        return Failure(
            lease=attempt.lease,
            reason=str(error),
            category=CATEGORY,
            failure_class=FailureClass.PERMANENT,
            error_type=type(error).__name__,
        )
    try:
        with attempt.giving_up():
            if await durable.parking.suspended_for(durable.divergence_request()):
                attempt.suspended = attempt.finished = True
    except LeaseLost:
        return None
    except FlowFabricError as trouble:
        # Nothing was counted: the lease expires, and the next attempt diverges again.
        log.warning("%s cannot be suspended: %s", attempt, trouble)
        attempt.lost = True
    return None
