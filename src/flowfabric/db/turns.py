"""Callers take turns at the connections of a pool, however many requests one of them has.

The driver's pool serves those that wait in the order in which they came. Of each caller that names
itself by `CALLER` only one waits there, the others wait behind that one, so that a caller with one
request is served after at most one request of every other caller.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import ContextVar
from typing import Final
from weakref import WeakValueDictionary

CALLER: Final[ContextVar[str | None]] = ContextVar("flowfabric_caller", default=None)
"""For whom this task works; None: for the process itself, which does not take turns."""


class Turns:
    """Who may wait for a connection."""

    def __init__(self) -> None:
        self._waiting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def turn(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Waits until no other request of this caller waits for a connection."""
        caller = CALLER.get()
        if caller is None:
            return contextlib.nullcontext()
        lock = self._waiting.get(caller)
        if lock is None:
            lock = self._waiting[caller] = asyncio.Lock()
        return lock
