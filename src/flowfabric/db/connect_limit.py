"""Bounds how often a process tries to connect: one attempt at a time, with pauses after failures.

While the database cannot be reached, every part of a process wants a connection: claims, outcomes,
sweeps, the listener. They share one limit for each database and event loop, so that the attempts do
not add up.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

FIRST_PAUSE: Final = 0.5
"""Seconds between the first two attempts that fail: at most two attempts a second."""
LAST_PAUSE: Final = 2.0

_limits: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, ConnectLimit]]] = (
    WeakKeyDictionary()
)


def connect_limit(dsn: str) -> ConnectLimit:
    """The limit that all connections to this database share on the running event loop."""
    by_dsn = _limits.setdefault(asyncio.get_running_loop(), {})
    return by_dsn.setdefault(dsn, ConnectLimit())


class ConnectLimit:
    """One attempt to connect at a time; after a failure the next attempt waits.

    Pauses grow from `FIRST_PAUSE` to `LAST_PAUSE`, and up to half as much is added by chance. An
    attempt that succeeds ends them: then connections are opened one after the other at once.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._next_at = 0.0
        self._pause = 0.0
        self._failed = 0
        self._error: Exception = ConnectionError("no attempt was made")

    async def open(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of `attempt`, once it is this caller's turn.

        An attempt that fails also fails for the callers that were waiting for it: they raise its
        error, and do not try one after the other.
        """
        failed = self._failed
        async with self._turn:
            if self._failed > failed:
                raise self._error.with_traceback(None)
            await asyncio.sleep(max(0.0, self._next_at - time.monotonic()))
            # Set before the attempt, so that one which is cancelled counts too.
            pause = min(max(FIRST_PAUSE, self._pause * 2), LAST_PAUSE)
            self._next_at = time.monotonic() + pause * random.uniform(1.0, 1.5)
            try:
                opened = await attempt()
            except Exception as error:
                self._failed, self._error, self._pause = self._failed + 1, error, pause
                raise
            self._next_at, self._pause = 0.0, 0.0
            return opened
