"""`/live`: server-sent events that say which topics have changed, and frames as they come."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from flowfabric.api.leaves import parse_execution_id
from flowfabric.dashboard.access import KEPT, read_cookies
from flowfabric.dashboard.problems import PageProblem
from flowfabric.dashboard.pulse import BEAT, BEATEN, MOST_TOPICS, RESYNC, Viewer
from flowfabric.dashboard.view.frames import frame_value
from flowfabric.dashboard.visit import Visit
from flowfabric.errors import EngineError, FlowFabricError
from flowfabric.ids import ExecutionId, parse_uuid
from flowfabric.server.asgi import Receive, Send, cancel_all, disconnected, send_head

QUIET: Final = 15.0
HEADERS: Final = {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
    "x-content-type-options": "nosniff",
}
BYE: Final = b"event: bye\ndata: {}\n\n"
_BLOCK: Final = 20.0
_FRAMES: Final = 200


class _Stream(msgspec.Struct, frozen=True):
    """The frames of one attempt, from the one after `after` on."""

    execution_id: ExecutionId
    attempt_index: int
    after: str


def encode(event: str, data: Any, place: str = "") -> bytes:
    """An event as it is sent."""
    head = f"id: {place}\n" if place else ""
    return f"{head}event: {event}\ndata: {msgspec.json.encode(data).decode()}\n\n".encode()


async def live(visit: Visit, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
    """Tell the page what has changed until it leaves, its session ends or the server stops."""
    given = visit.queries("t")
    if len(given) > MOST_TOPICS:
        raise PageProblem(422, f"A page may watch {MOST_TOPICS} topics.")
    topics, streams = await _allowed(visit, given)
    drawn = {each for each in topics if each.startswith("g.")}  # told by states, not by the pulse
    graphs = [parse_uuid(each.removeprefix("g."), field="flow_id") for each in drawn]
    await send_head(send, 200, HEADERS)
    gone = asyncio.create_task(disconnected(receive))
    stop = asyncio.create_task(visit.site.draining.wait())
    queue: asyncio.Queue[bytes] = asyncio.Queue(100)
    with visit.site.pulse.watching(topics - drawn) as viewer:
        sources = [asyncio.create_task(_fill(queue, _changes(viewer)))]
        sources += [asyncio.create_task(_fill(queue, _frames(visit, each))) for each in streams]
        sources += [asyncio.create_task(_fill(queue, _states(visit, each))) for each in graphs]
        coming: asyncio.Task[bytes] | None = None
        # An application around the dashboard may ask its own database who looks: not so often.
        every = BEAT if visit.site.access.has_login else KEPT
        looked_at = time.monotonic()
        try:
            await _write(send, b": open\n\n")
            while True:
                coming = coming or asyncio.create_task(queue.get())
                await asyncio.wait(
                    (coming, gone, stop), timeout=QUIET, return_when=asyncio.FIRST_COMPLETED
                )
                if gone.done():
                    return
                may_look = True
                if time.monotonic() - looked_at >= every:
                    looked_at, may_look = time.monotonic(), await _may_still_look(visit, scope)
                if stop.done() or not may_look:
                    await _write(send, BYE)
                    await send({"type": "http.response.body", "body": b""})
                    return
                if coming.done():
                    text, coming = coming.result(), None
                    await _write(send, text)
                else:
                    await _write(send, b": quiet\n\n")
        finally:
            await cancel_all([gone, stop, *sources, *([] if coming is None else [coming])])


async def _may_still_look(visit: Visit, scope: Mapping[str, Any]) -> bool:
    """Is the person who opened the stream still logged in, with the same rights?

    Frames have payloads, so a stream must not outlive its session. A database that does not
    answer ends no stream: nothing is sent without it either.
    """
    cookies = read_cookies(visit.headers.get(b"cookie", b""))
    try:
        visitor = await visit.site.access.visitor(scope, cookies)
    except FlowFabricError:
        return True
    return visitor is not None and visitor.principal == visit.principal


async def _allowed(visit: Visit, given: list[str]) -> tuple[frozenset[str], list[_Stream]]:
    """The topics that the viewer may watch; a foreign one is as silent as an unknown one."""
    topics = {each for each in given if each in BEATEN}
    executions: dict[str, ExecutionId] = {}
    streams: list[_Stream] = []
    for each in given:
        kind, _, rest = each.partition(".")
        with contextlib.suppress(EngineError, ValueError):
            if kind == "x":
                executions[each] = parse_execution_id(rest)
            elif kind in ("f", "g"):
                flow_id = parse_uuid(rest, field="flow_id")
                if visit.principal.sees(await visit.engine.get_flow_namespace(flow_id)):
                    topics.add(each)
            elif kind == "bulk":
                bulk = await visit.engine.read_bulk_action(parse_uuid(rest, field="bulk_id"))
                if visit.principal.sees(bulk.namespace):
                    topics.add(each)
            elif kind == "s":
                partition, uuid, attempt = rest.split(".", 2)
                wanted = parse_execution_id(f"{partition}.{uuid}")
                executions[each] = wanted
                after = visit.headers.get(b"last-event-id", b"").decode("latin-1")
                index, _, seen = attempt.partition("@")
                streams.append(_Stream(wanted, int(index), after or seen or "0-0"))
    known = {each for each in executions.values() if each.partition_key < visit.engine.partitions}
    namespaces = await visit.engine.read_namespaces(list(known)) if known else {}
    seen_ids = {each for each, namespace in namespaces.items() if visit.principal.sees(namespace)}
    topics |= {topic for topic, each in executions.items() if each in seen_ids and topic[0] == "x"}
    shown = [each for each in streams if each.execution_id in seen_ids]
    return frozenset(topics), [] if visit.principal.hide_payloads else shown


async def _fill(queue: asyncio.Queue[bytes], events: AsyncGenerator[bytes]) -> None:
    async with contextlib.aclosing(events):
        async for each in events:
            await queue.put(each)


async def _changes(viewer: Viewer) -> AsyncGenerator[bytes]:
    while True:
        changed = await viewer.changed()
        if RESYNC in changed:
            yield encode("resync", {})
        else:
            yield encode("changed", {"t": sorted(changed)})


async def _states(visit: Visit, flow_id: UUID) -> AsyncGenerator[bytes]:
    """The states of the members of a flow that is drawn, as they change."""
    async with contextlib.aclosing(visit.site.flow_watch.changes(flow_id)) as changes:
        async for change in changes:
            yield encode("states", change)


async def _frames(visit: Visit, stream: _Stream) -> AsyncGenerator[bytes]:
    after = stream.after
    while True:
        try:
            page = await visit.engine.tail_stream(
                stream.execution_id,
                stream.attempt_index,
                after=after,
                block=_BLOCK,
                count_limit=_FRAMES,
            )
        except FlowFabricError:
            return
        if page.frames:
            after = str(page.frames[-1].id)
            redact = visit.site.settings.redact
            shown = [frame_value(each, redact) for each in page.frames]
            yield encode("frames", shown, place=after)  # one event: thousands would block the page
        if page.closed_at is not None and not page.frames:
            return


async def _write(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
