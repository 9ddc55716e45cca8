"""Server-sent events: each with its cursor as `id`, and a comment while nothing happens.

The last event is `end` if nothing can follow, and `bye` if the server stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec

from flowfabric.api.problems import problem_of
from flowfabric.errors import FlowFabricError
from flowfabric.server.asgi import Receive, Send, cancel_all, disconnected

QUIET: Final = 15.0
"""Seconds without an event after which a comment is sent."""
HEADERS: Final = {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}


class ServerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event; `id` is the cursor after it."""

    id: str
    event: str
    data: Any

    def encode(self) -> bytes:
        """The event as it is sent; without a name only its id, which says where the stream is."""
        if not self.event:
            return b"id: %s\n\n" % self.id.encode()
        data = msgspec.json.encode(self.data)
        return b"id: %s\nevent: %s\ndata: %s\n\n" % (self.id.encode(), self.event.encode(), data)


async def send_events(
    events: AsyncGenerator[ServerEvent],
    receive: Receive,
    send: Send,
    draining: asyncio.Event,
) -> None:
    """Send the events until they end, the client leaves, or the server stops."""
    gone = asyncio.create_task(disconnected(receive))
    stop = asyncio.create_task(draining.wait())
    coming: asyncio.Task[ServerEvent] | None = None
    try:
        while True:
            if coming is None:
                coming = asyncio.create_task(anext(events))  # pyright: ignore[reportArgumentType]
            await asyncio.wait(
                (coming, gone, stop), timeout=QUIET, return_when=asyncio.FIRST_COMPLETED
            )
            if gone.done():
                return
            if coming.done():
                text, coming, over = _text(coming), None, _is_over(coming)
                await _write(send, text)
                if over:
                    return
            if stop.done():  # also of a stream that always has something to send
                await _write(send, b"event: bye\ndata: {}\n\n")
                return
            if coming is not None:
                await _write(send, b": quiet\n\n")
    finally:
        await cancel_all([gone, stop, *([] if coming is None else [coming])])
        await events.aclose()


def _is_over(done: asyncio.Task[ServerEvent]) -> bool:
    return done.exception() is not None


def _text(done: asyncio.Task[ServerEvent]) -> bytes:
    error = done.exception()
    if error is None:
        return done.result().encode()
    if isinstance(error, StopAsyncIteration):
        return b"event: end\ndata: {}\n\n"
    if isinstance(error, FlowFabricError):
        return b"event: problem\ndata: %s\n\n" % msgspec.json.encode(problem_of(error))
    raise error


async def _write(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
