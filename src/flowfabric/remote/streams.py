"""Frames and events that the server sends as they come, resumed where a connection broke."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final, cast

import msgspec

from flowfabric.api.forms import Wanted, form
from flowfabric.api.problems import error_of
from flowfabric.engine.events.cursor import decode_cursor, encode_cursor
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.outbox import E
from flowfabric.engine.events.subscribe import Subscription
from flowfabric.engine.streams.frame import Frame
from flowfabric.errors import ApiError, StreamDisconnected, TransportError
from flowfabric.remote.transport import Transport

_READ: Final = Wanted("out", read=True)
_FRAME: Final = form(Frame, _READ)
_END: Final = "end"
_BYE: Final = "bye"
_PROBLEM: Final = "problem"


async def follow_frames(
    transport: Transport, path: str, query: Sequence[tuple[str, str]], after: str | None
) -> AsyncGenerator[Frame]:
    """The frames, until none can follow; goes on at the last frame after a lost connection."""
    while True:
        place = [] if after is None else [("cursor", after)]
        events = transport.events(path, [*query, *place])
        try:
            async for cursor, event, data in events:
                if event == "frame":
                    yield _FRAME.loaded(msgspec.json.decode(data, type=_FRAME.wire))
                    after = cursor
                elif event == _PROBLEM:
                    raise _error(data)
                elif event == _END:
                    return
        except TransportError:
            pass
        finally:
            await events.aclose()
        await asyncio.sleep(random.uniform(0.1, 1.0))


class RemoteSubscription(Subscription[E]):
    """A subscription at the server: the same iterator, with the same cursors."""

    def __init__(
        self,
        transport: Transport,
        family: str,
        kind: type[E],
        cursor: bytes,
        query: Sequence[tuple[str, str]],
        *,
        resumes: bool,
    ) -> None:
        self._transport, self._family, self._query = transport, family, query
        self._form = form(kind, _READ)
        self._place: int | None = decode_cursor(cursor) if cursor else None
        self._resumes = resumes
        self._events: AsyncGenerator[tuple[str, str, bytes]] | None = None
        self._closed = False

    async def begin(self) -> None:
        """Learn the place where it begins: what happens from now on is delivered."""
        await self._next()

    @property
    def cursor(self) -> bytes:
        """The position to resume from."""
        return b"" if self._place is None else encode_cursor(self._place)

    async def __anext__(self) -> E:
        while not self._closed:
            try:
                event, data = await self._next()
            except TransportError as error:
                await self._drop()
                if not self._resumes:
                    self._closed = True
                    raise StreamDisconnected(self.cursor) from error
                await asyncio.sleep(random.uniform(0.1, 1.0))
                continue
            if event == self._family:
                return cast("E", self._form.loaded(msgspec.json.decode(data, type=self._form.wire)))
            if event == _PROBLEM:
                raise _error(data)
            if event in (_BYE, _END):
                await self._drop()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """No more events."""
        self._closed = True
        await self._drop()

    async def _drop(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            await events.aclose()

    async def _next(self) -> tuple[str, bytes]:
        if self._events is None:
            letter = self._family[0]
            place = [] if self._place is None else [("cursor", f"{letter}{self._place:x}")]
            self._events = self._transport.events("/v1/events/live", [*self._query, *place])
        try:
            cursor, event, data = await anext(self._events)
        except StopAsyncIteration:
            raise TransportError("the stream of events ended") from None
        if cursor:
            self._place = int(cursor[1:], 16)
        return event, data


async def subscribe(
    transport: Transport,
    family: str,
    kind: type[E],
    cursor: bytes,
    wanted: EventFilter | None,
    *,
    resumes: bool = False,
) -> Subscription[E]:
    """The events of one family after the cursor; `resumes` after a lost connection by itself."""
    query = [("family", family)]
    if wanted is not None and wanted.namespace is not None:
        query.append(("namespace", wanted.namespace))
    if wanted is not None and wanted.tag is not None:
        query.append(("tag", "=".join(wanted.tag)))
    found = RemoteSubscription(transport, family, kind, cursor, query, resumes=resumes)
    await found.begin()
    return found


def _error(data: bytes) -> Exception:
    members: dict[str, Any] = msgspec.json.decode(data)
    return error_of(members) or ApiError.of(members)
