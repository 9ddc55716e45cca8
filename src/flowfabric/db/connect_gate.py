"""Bounds how often a pool tries to connect while the database refuses its connections."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 1.0
_CALM: Final = 2.0
"""After how many seconds without a failure the pauses begin anew."""

C = TypeVar("C")


class ConnectGate(Generic[C]):
    """After a failure one caller at a time tries again, after a pause; the others share the result.

    So a pool tries at most twice a second while the database is away, however many callers wait
    for a connection, and once more for each of its connections when the database is back.
    """

    def __init__(self, connect: Callable[..., Awaitable[C]]) -> None:
        self._connect = connect
        self._failure: Exception | None = None
        self._failed_at = 0.0
        self._pause = 0.0
        self._trial: asyncio.Future[Exception | None] | None = None

    async def connect(self, *args: Any, **kwargs: Any) -> C:
        """A new connection; raises what the driver raises, for this call or for a shared trial."""
        while self._failure is not None:
            trial = self._trial
            if trial is None:
                return await self._try_alone(*args, **kwargs)
            await asyncio.wait((trial,))
            if (failure := trial.result()) is not None:
                raise failure
        return await self._try(*args, **kwargs)

    async def _try_alone(self, *args: Any, **kwargs: Any) -> C:
        self._trial = trial = asyncio.get_running_loop().create_future()
        failure: Exception | None = None  # also if this caller is cancelled: another one tries
        try:
            await asyncio.sleep(random.uniform(self._pause / 2, self._pause))
            return await self._try(*args, **kwargs)
        except Exception as error:
            failure = error
            raise
        finally:
            self._trial = None
            trial.set_result(failure)

    async def _try(self, *args: Any, **kwargs: Any) -> C:
        try:
            conn = await self._connect(*args, **kwargs)
        except Exception as error:
            self._pause = min(max(self._pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)
            self._failure, self._failed_at = error, time.monotonic()
            raise
        if time.monotonic() - self._failed_at > _CALM:
            self._pause = 0.0
        self._failure = None
        return conn
