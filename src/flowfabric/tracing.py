"""OpenTelemetry: one trace from the submit of an execution to its attempts, steps and children.

The context of the submit is kept with the execution as the tag `ff.traceparent`. Spans are made
only in a process whose application has set a tracer provider. In any other process each of these
functions looks once whether OpenTelemetry is imported, and does nothing.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from flowfabric.tags import have_room
from flowfabric.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

    class SpanContextManager(Protocol):
        """Does not keep an error from being raised."""

        def __enter__(self) -> object: ...
        def __exit__(self, *_: object) -> None: ...


TRACEPARENT: Final = "ff.traceparent"
"""The tag of an execution that has the W3C trace context of its submit."""

_FORM: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_LENGTH: Final = 55
"""The characters of a context of version 00."""
_NOTHING: Final = contextlib.nullcontext()


def tracer() -> Tracer | None:
    """The tracer of this package; None unless the application has set a tracer provider."""
    # A program that sets a provider has imported the module: without it there is nothing to ask.
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    if type(provider).__name__ == "ProxyTracerProvider":  # stands for a provider that is not set
        return None
    return provider.get_tracer("flowfabric", __version__)


def is_traceparent(text: str) -> bool:
    """Is it a W3C trace context, as the header `traceparent` has it?"""
    found = _FORM.fullmatch(text)
    if found is None or text.startswith("ff") or (found[4] and text.startswith("00")):
        return False
    return int(found[1], 16) != 0 and int(found[2], 16) != 0


def with_context(tags: Mapping[str, str], traceparent: str) -> Mapping[str, str]:
    """The tags, with this context; a context that is given stays.

    They stay as they are without room for one more, and beside a context that cannot be read: a
    submit is not refused for its trace. Of a later version, what W3C says of this one is kept.
    """
    if TRACEPARENT in tags or not is_traceparent(traceparent):
        return tags
    found = {**tags, TRACEPARENT: traceparent[:_LENGTH]}
    return found if have_room(found) else tags


def with_traceparent(tags: Mapping[str, str]) -> Mapping[str, str]:
    """As `with_context`, of the span that is current."""
    if tracer() is None or TRACEPARENT in tags:
        return tags
    from opentelemetry.trace import get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return tags
    flags = int(context.trace_flags)
    return with_context(tags, f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}")


def submit_span(kind: str) -> SpanContextManager:
    """Inside the block a span is current to which the attempts of the execution belong."""
    found = tracer()
    if found is None:
        return _NOTHING
    from opentelemetry.trace import SpanKind

    span = found.start_as_current_span(
        f"submit {kind}", kind=SpanKind.PRODUCER, attributes={"flowfabric.kind": kind}
    )
    return cast("SpanContextManager", span)


def step_span(name: str) -> SpanContextManager:
    """Inside the block the function of a step runs."""
    found = tracer()
    if found is None:
        return _NOTHING
    span = found.start_as_current_span(f"step {name}", attributes={"flowfabric.step": name})
    return cast("SpanContextManager", span)


@contextlib.contextmanager
def attempt_span(
    of: Tracer, kind: str, tags: Mapping[str, str], claimed: tuple[float, float], facts: Any
) -> Generator[Span]:
    """Inside the block an attempt runs, as part of the trace that its execution was submitted in.

    `claimed` is when its claim was sent and answered, on the monotonic clock. `facts` become
    attributes.
    """
    from opentelemetry.trace import SpanKind

    parent = _context(tags.get(TRACEPARENT))
    to_wall = time.time_ns() - time.monotonic_ns()
    sent, answered = (to_wall + round(each * 1e9) for each in claimed)
    claim = of.start_span(f"claim {kind}", parent, start_time=sent, attributes=facts)
    claim.end(answered)
    with of.start_as_current_span(
        f"run {kind}",
        parent,
        kind=SpanKind.CONSUMER,
        attributes=facts,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield span


def log_fields() -> dict[str, str]:
    """`trace_id` and `span_id` of the span that is current, for a log record."""
    if tracer() is None:
        return {}
    from opentelemetry.trace import get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def _context(traceparent: str | None) -> Context | None:
    """The context that a tag names; one without a trace if there is none or it cannot be read."""
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        NonRecordingSpan,
        SpanContext,
        TraceFlags,
        set_span_in_context,
    )

    if traceparent is None or not is_traceparent(traceparent):
        return Context()
    _, trace_id, span_id, flags = traceparent.split("-")[:4]
    context = SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )
    return set_span_in_context(NonRecordingSpan(context), Context())
