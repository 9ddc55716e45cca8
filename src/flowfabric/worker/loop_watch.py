"""Whether handlers block the event loop: another thread asks it for a sign, and waits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Final

LEAST: Final = 5.0
"""Seconds without a sign that are worth a word; less may be a busy machine."""


class LoopWatch:
    """How long an event loop did not run what was ready. Asked by one thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._asked_at: float | None = None
        self._longest = 0.0

    def ask(self) -> None:
        """Ask for a sign, unless one is still waited for."""
        with self._lock:
            if self._asked_at is not None:
                return
            self._asked_at = time.monotonic()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._answer)

    def blocked_for(self) -> float:
        """The longest wait for a sign since this was asked last, in seconds; 0 if it was short."""
        with self._lock:
            waited = 0.0 if self._asked_at is None else time.monotonic() - self._asked_at
            longest, self._longest = max(self._longest, waited), 0.0
        return longest if longest >= LEAST else 0.0

    def _answer(self) -> None:
        with self._lock:
            if self._asked_at is not None:
                self._longest = max(self._longest, time.monotonic() - self._asked_at)
                self._asked_at = None
