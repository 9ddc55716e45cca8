"""An attempt in a trace: a span from the start of its handler to its outcome."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.release_after_trouble import Trouble
from flowfabric.ids import clean_text
from flowfabric.tracing import attempt_span
from flowfabric.worker.run_attempt import HandlerOutcome
from flowfabric.worker.running_attempt import RunningAttempt

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


async def trace_attempt(
    tracer: Tracer, attempt: RunningAttempt, running: Coroutine[Any, Any, HandlerOutcome]
) -> HandlerOutcome:
    """The outcome of `running`, which runs in a span of the execution's trace.

    The span of an attempt that failed has the status of an error, and its reason. Its payload,
    result and traceback are not in the span.
    """
    claimed = attempt.claimed
    facts: dict[str, str | int] = {
        "flowfabric.execution_id": str(attempt.execution_id),
        "flowfabric.kind": claimed.execution_kind,
        "flowfabric.lane": claimed.lane_id,
        "flowfabric.attempt": claimed.lease.attempt_index + 1,
    }
    if claimed.flow_id is not None:
        facts["flowfabric.flow_id"] = str(claimed.flow_id)
    times = (attempt.claimed_at, attempt.answered_at)
    with attempt_span(tracer, claimed.execution_kind, claimed.tags, times, facts) as span:
        outcome = await running
        if isinstance(outcome, Failure | Trouble):
            from opentelemetry.trace import StatusCode

            span.set_status(StatusCode.ERROR, clean_text(outcome.reason))
        elif attempt.suspended:
            span.set_attribute("flowfabric.suspended", True)
        elif attempt.lost:
            span.set_attribute("flowfabric.lease_lost", True)
        return outcome
