"""Waits at the server: a request that is answered when there may be something to read."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from flowfabric.errors import FlowFabricError

_WAIT: Final = 20.0
_WAIT_FOR_SOME: Final = 2.0
"""Where one request cannot name all that is waited for, it names others each time."""
_AT_ONCE: Final = 1000
_GATHER: Final = 0.002
_FIRST_PAUSE: Final = 0.05
_LAST_PAUSE: Final = 1.0


class LongPoll:
    """Tells its owner when to read again; has the methods of a waiter of the database."""

    def __init__(
        self,
        read: Callable[[Sequence[Any], float], Awaitable[Any]],
        pending: Callable[[], Sequence[Any]],
    ) -> None:
        """`read` is answered when one of what is pending has ended, or after some seconds."""
        self._read, self._pending = read, pending
        self._woken = asyncio.Event()
        self._pause = _FIRST_PAUSE

    async def close(self) -> None:
        """Nothing is kept at the server."""

    def looking(self) -> None:
        """A read begins, and covers every wake-up up to now."""
        self._woken.clear()

    def found(self) -> None:
        """The last read found something: pauses are short again."""
        self._pause = _FIRST_PAUSE

    def wake(self) -> None:
        """Make the running `wait`, or the next one, return at once."""
        self._woken.set()

    async def wait(self) -> bool:
        """The last read found nothing: return when the owner should read again."""
        pending = self._pending()
        wait = _WAIT
        if len(pending) > _AT_ONCE:
            pending, wait = random.sample(pending, _AT_ONCE), _WAIT_FOR_SOME
        if not pending:
            return True
        reading = asyncio.ensure_future(self._read(pending, wait))
        woken = asyncio.create_task(self._woken.wait())
        try:
            await asyncio.wait((reading, woken), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.sleep(_GATHER)  # what is waited for now is often waited for by many
                return True
            error = reading.exception()
            if isinstance(error, FlowFabricError):
                return await self.pause()
            return bool(reading.result())
        finally:
            for task in (reading, woken):
                task.cancel()
            await asyncio.gather(reading, woken, return_exceptions=True)

    async def pause(self) -> bool:
        """Return after a short pause, which grows, or when woken."""
        try:
            async with asyncio.timeout(self._pause * random.uniform(0.5, 1.0)):
                await self._woken.wait()
        except TimeoutError:
            self._pause = min(self._pause * 2, _LAST_PAUSE)
            return False
        return True
