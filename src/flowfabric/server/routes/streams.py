"""Streams: the frames that a handler appends, read, awaited or followed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from flowfabric.api.forms import Wanted, form
from flowfabric.engine.streams.cursor import BEGINNING, after
from flowfabric.engine.streams.frame import Frame
from flowfabric.engine.streams.read_summary import StreamSummary
from flowfabric.errors import NotFound
from flowfabric.server.call import ApiCall
from flowfabric.server.pages import check_limit
from flowfabric.server.problems import invalid
from flowfabric.server.routes.execution_reads import X, check_payloads, describe
from flowfabric.server.sse import ServerEvent
from flowfabric.server.table import Kind, Route, route
from flowfabric.states import FrameVisibility, Scope, StreamClosedReason

A: Final = X + "/attempts/{attempt_index}"
_FRAME: Final = form(Frame, Wanted("out"))


class FramesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frames from one place to another; with `after`, those that follow it, within `wait` s."""

    from_: str = msgspec.field(default="start", name="from")
    to: str = "end"
    after: str | None = None
    limit: int = 50
    wait: float = 0.0
    visibility: FrameVisibility = FrameVisibility.ALL


class LiveFramesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the stream goes on, unless `Last-Event-ID` says so."""

    cursor: str | None = None
    visibility: FrameVisibility = FrameVisibility.ALL


class AllFramesQuery(LiveFramesQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Only one attempt, or all; without `follow` the frames that are there."""

    attempt: int | None = None
    follow: bool = True


class Frames(msgspec.Struct, frozen=True, kw_only=True):
    """Frames in their order; `closed_at` if there will be no more."""

    items: list[Frame]
    next_cursor: str | None
    closed_at: datetime | None
    closed_reason: StreamClosedReason | None


async def read_stream(call: ApiCall, query: FramesQuery) -> Frames:
    """Frames of one attempt; with `after` and `wait`, as soon as there are some."""
    check_payloads(call)
    execution_id, attempt = (await describe(call)).execution_id, call.number("attempt_index")
    limit = check_limit(query.limit)
    seconds = call.seconds(query.wait)
    if query.after is None:
        if seconds:
            raise invalid("wait", "needs after: the place behind which frames are waited for")
        found = await call.engine.read_stream(
            execution_id,
            attempt,
            from_=query.from_,
            to=query.to,
            count_limit=limit,
            visibility=query.visibility,
        )
    else:
        tail = partial(
            call.engine.tail_stream,
            execution_id,
            attempt,
            after=query.after,
            count_limit=limit,
            visibility=query.visibility,
        )
        found = await call.services.unless_draining(tail(block=seconds))
        if found is None:
            found = await tail(block=0.0)
    last = str(found.frames[-1].id) if found.frames else query.after
    return Frames(
        items=found.frames,
        next_cursor=last,
        closed_at=found.closed_at,
        closed_reason=found.closed_reason,
    )


async def follow_stream(call: ApiCall, query: LiveFramesQuery) -> AsyncGenerator[ServerEvent]:
    """Frames of one attempt as they are appended, as server-sent events `frame`."""
    check_payloads(call)
    execution_id, attempt = (await describe(call)).execution_id, call.number("attempt_index")
    cursor = call.header("last-event-id") or query.cursor or BEGINNING
    after(cursor, field="cursor")
    frames = await call.engine.follow_stream(
        execution_id, attempt=attempt, after=cursor, visibility=query.visibility
    )

    async def events() -> AsyncGenerator[ServerEvent]:
        try:
            async for frame in frames:
                yield ServerEvent(id=str(frame.id), event="frame", data=_FRAME.dumped(frame))
        finally:
            await frames.aclose()

    return events()


async def follow_frames(call: ApiCall, query: AllFramesQuery) -> AsyncGenerator[ServerEvent]:
    """Frames of every attempt, as server-sent events `frame`; `id` resumes the stream."""
    check_payloads(call)
    frames = await call.engine.follow_stream(
        (await describe(call)).execution_id,
        attempt=query.attempt,
        after=call.header("last-event-id") or query.cursor,
        visibility=query.visibility,
        follow=query.follow,
    )

    async def events() -> AsyncGenerator[ServerEvent]:
        try:
            async for frame in frames:
                yield ServerEvent(id=frame.cursor, event="frame", data=_FRAME.dumped(frame))
        finally:
            await frames.aclose()

    return events()


async def read_summary(call: ApiCall) -> StreamSummary:
    """The document that the frames of one attempt have built."""
    check_payloads(call)
    execution_id = (await describe(call)).execution_id
    found = await call.engine.read_summary(execution_id, call.number("attempt_index"))
    if found is None:
        raise NotFound("summary", execution_id)
    return found


async def read_state(call: ApiCall) -> StreamSummary:
    """The newest document that the frames of any attempt have built."""
    check_payloads(call)
    execution_id = (await describe(call)).execution_id
    found = await call.engine.read_state(execution_id)
    if found is None:
        raise NotFound("summary", execution_id)
    return found


def _read(path: str, handler: Any, answer: Any, **more: Any) -> Route:
    return route("GET", path, handler, scope=Scope.READ, answers={200: answer}, **more)


ROUTES: Final[tuple[Route, ...]] = (
    _read(A + "/frames", read_stream, Frames, query=FramesQuery, waits=True),
    _read(A + "/frames/live", follow_stream, Frame, query=LiveFramesQuery, kind=Kind.STREAM),
    _read(X + "/frames/live", follow_frames, Frame, query=AllFramesQuery, kind=Kind.STREAM),
    _read(A + "/summary", read_summary, StreamSummary),
    _read(X + "/summary", read_state, StreamSummary),
)
