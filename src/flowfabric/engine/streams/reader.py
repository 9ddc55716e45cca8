"""The readers of streams in one process: their queries are gathered, and they wait without one.

A reader that waits holds no connection. The process registers once for all of them. A notification
of an append names its execution, and wakes the readers of that one; the end of an execution or an
attempt wakes all, and their queries travel as one statement.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Generator, Sequence
from typing import Final

from flowfabric.counters import STREAM_OPS
from flowfabric.db.batcher import Batcher
from flowfabric.db.listen import Listener, signalled
from flowfabric.db.pool import Pool
from flowfabric.db.transaction import run
from flowfabric.db.waiter import Waiter
from flowfabric.engine.streams.read_frames import FrameRequest, StreamPage, read_frames
from flowfabric.errors import ResourceExhausted, Unavailable
from flowfabric.ids import ExecutionId

POLL: Final = 5.0
"""Seconds after which a reader that waits queries again without having been notified."""
_MOST_FRAMES: Final = 10_000
_IN_FLIGHT: Final = 2
"""Queries at once; each has the requests of many readers."""
_GATHER: Final = 0.002
_APART: Final = 0.02
"""Seconds between two wake-ups of all readers, however many executions end."""
TOPICS: Final = ("stream", "completion", "attempt")
"""What wakes readers: an append, the end of an execution, the end of an attempt."""


class StreamReader:
    """Reads and tails streams for one process; to be closed before its listener and its pool."""

    def __init__(self, pool: Pool, listener: Listener) -> None:
        self._pool, self._listener = pool, listener
        self._queries: Batcher[FrameRequest, StreamPage] = Batcher(
            self._read,
            max_weight=_MOST_FRAMES,
            weight=lambda each: each.count_limit,
            # A connection is left for others: an append does not wait for a read.
            in_flight=max(1, min(_IN_FLIGHT, pool.config.pool_size - 1)),
        )
        self._waiter = Waiter(pool, listener, TOPICS, name="stream", poll=POLL, gather=_GATHER)
        self._waiting: set[asyncio.Event] = set()
        self._watching: asyncio.Task[None] | None = None
        self._running = 0
        self._closed = False

    async def close(self) -> None:
        """Readers that wait get `Unavailable`."""
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait((self._watching,), timeout=2.0)
        await self._waiter.close()
        self._wake_all()

    @contextlib.contextmanager
    def limited(self) -> Generator[None]:
        """The block is one read or tail; raises `ResourceExhausted` if too many run already."""
        most = self._pool.config.max_stream_ops
        if self._running >= most:
            why = f"{most} reads and tails of streams run in this process already"
            raise ResourceExhausted("stream reads", f"{why} (FF_MAX_CONCURRENT_STREAM_OPS)")
        self._running += 1
        STREAM_OPS.change(1)
        try:
            yield
        finally:
            self._running -= 1
            STREAM_OPS.change(-1)

    async def read(self, request: FrameRequest) -> StreamPage:
        """The frames that are there now."""
        if self._closed:
            raise Unavailable("read_stream", "this client or worker is closed; make another one")
        return await self._queries.request(request)

    async def tail(
        self, request: FrameRequest, seconds: float | None, *, attempt_only: bool = True
    ) -> StreamPage:
        """As `read`; if there is no frame, waits up to `seconds` for one, or for the end.

        Returns when no frame can follow: the execution has ended, or goes on with another attempt.
        Unless `attempt_only=False`, returns when the stream is closed, too.
        """
        until = None if seconds is None else time.monotonic() + seconds
        with self._notified(request.execution_id) as event:
            while True:
                page = await self.read(request)
                closed = attempt_only and page.closed_at is not None
                if page.frames:
                    self._waiter.found()
                if page.frames or closed or is_over(page, request):
                    return page
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return page
                self._watch()
                await signalled(event, left)

    async def _read(self, requests: Sequence[FrameRequest]) -> Sequence[StreamPage]:
        return await run(self._pool, "read_frames", lambda conn: read_frames(conn, requests))

    @contextlib.contextmanager
    def _notified(self, execution_id: ExecutionId) -> Generator[asyncio.Event]:
        """An event that is set whenever the block should query again.

        It is subscribed before the first query, and cleared before each further one: nothing that
        is committed after a query is missed.
        """
        event = self._listener.subscribe(f"stream:{execution_id.uuid}")
        self._waiting.add(event)
        try:
            yield event
        finally:
            self._waiting.discard(event)
            self._listener.unsubscribe(event)

    def _watch(self) -> None:
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._wake_waiting(), name="flowfabric streams")
            self._waiter.found()

    async def _wake_waiting(self) -> None:
        """Wake all when something has ended, notifications may be missing, or time has passed."""
        while self._waiting and not self._closed:
            await self._waiter.wait()
            self._wake_all()
            await asyncio.sleep(_APART)

    def _wake_all(self) -> None:
        for event in self._waiting:
            event.set()


def is_over(page: StreamPage, request: FrameRequest) -> bool:
    """Can no frame of this attempt follow? There is no execution, it has ended, or gone on."""
    return not page.found or page.ended or page.last_attempt > request.attempt_index
