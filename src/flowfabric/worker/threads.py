"""Threads for handlers that are plain functions, also for those that do not return in time.

A thread cannot be stopped. When its attempt is over (timed out, cancelled, lease lost) and the
function still runs, the thread is *stuck*: it occupies neither a slot nor one of the `size`
threads, and is counted apart. Stuck threads are limited, so that the retries of a function that
hangs do not take thread after thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, TypeAlias

log: Final = logging.getLogger("flowfabric.worker")
STUCK: Final = "flowfabric handler (stuck)"
"""The name of a stuck thread."""
_NAME: Final = "flowfabric handler"
_NONE: Final[frozenset[str]] = frozenset()

Returned: TypeAlias = "asyncio.Future[tuple[Any, BaseException | None]]"
"""What a function returned or raised, as a value: a future refuses some exceptions."""


class HandlerThreads:
    """At most `size` threads that run handlers, and those that are stuck.

    While `most_stuck` threads or more are stuck (as many as `size` unless given), kinds that have
    such threads are `exhausted`: no more of their executions are claimed. Other kinds go on.
    """

    def __init__(self, size: int | None = None, *, most_stuck: int | None = None) -> None:
        self._size = size or min(32, (os.cpu_count() or 1) + 4)
        self._most_stuck = self._size if most_stuck is None else most_stuck
        self._free = asyncio.Semaphore(self._size)
        self._idle: list[_Thread] = []
        self._closed = False
        self._stuck: Counter[str] = Counter()
        self.on_change: Callable[[], None] | None = None
        """Called on the event loop when a thread is stuck, and when one has returned."""

    @property
    def stuck(self) -> dict[str, int]:
        """How many threads are stuck, by kind."""
        return {kind: count for kind, count in tuple(self._stuck.items()) if count}

    @property
    def exhausted(self) -> frozenset[str]:
        """The kinds that are not claimed until a stuck thread has returned."""
        if not self._stuck:
            return _NONE
        stuck = self.stuck
        return frozenset(stuck if sum(stuck.values()) >= self._most_stuck else ())

    async def run(
        self,
        kind: str,
        function: Callable[[], Any],
        running: list[Returned] | None = None,
        *,
        lent: bool = False,
    ) -> Any:
        """What the function returns or raises, run in a thread; waits while none is free.

        A thread whose caller is cancelled is stuck until its function returns. The future of a
        function that has begun is added to `running`. With `lent` the caller is the function of
        another thread, which waits meanwhile: the two count as one.
        """
        async with contextlib.nullcontext() if lent else self._free:
            thread = self._idle.pop() if self._idle else _Thread()
            returned = thread.start(function)
            if running is not None:
                running.append(returned)
            try:
                result, raised = await asyncio.shield(returned)
            except asyncio.CancelledError:
                if returned.done():
                    self._free_again(thread)
                else:
                    self._left_running(kind, thread, returned)
                raise
            self._free_again(thread)
        if raised is not None:
            raise raised
        return result

    def close(self) -> None:
        """End the threads that are idle; those that run end with their function."""
        self._closed = True
        for thread in self._idle:
            thread.end()
        self._idle.clear()

    def _free_again(self, thread: _Thread) -> None:
        if self._closed or len(self._idle) >= self._size:
            thread.end()
        else:
            self._idle.append(thread)

    def _left_running(self, kind: str, thread: _Thread, returned: Returned) -> None:
        def has_returned(_: Returned) -> None:
            before = self.exhausted
            self._stuck[kind] -= 1
            thread.rename(_NAME)
            self._free_again(thread)
            for each in sorted(before - self.exhausted):
                log.info("a stuck thread of task %r has returned: %r is claimed again", kind, each)
            self._changed()

        before = self.exhausted
        self._stuck[kind] += 1
        thread.rename(STUCK)
        returned.add_done_callback(has_returned)
        log.warning(
            "a thread of task %r still runs although its attempt is over: %s of this task, %s in "
            'all, are stuck; a task with executor="process" can be stopped',
            kind,
            self._stuck[kind],
            sum(self._stuck.values()),
        )
        for each in sorted(self.exhausted - before):
            log.warning(
                "task %r is not claimed until one of its %s stuck threads returns",
                each,
                self._stuck[each],
            )
        self._changed()

    def _changed(self) -> None:
        if self.on_change is not None and not self._closed:
            self.on_change()


class _Thread:
    """Runs functions one after the other; the end of the process does not wait for it."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._main, name=_NAME, daemon=True)
        self._thread.start()

    def start(self, function: Callable[[], Any]) -> Returned:
        """The future of the function, which runs from now on."""
        loop = asyncio.get_running_loop()
        returned: Returned = loop.create_future()

        def work() -> None:
            outcome = _caught(function)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_set, returned, outcome)

        self._work.put(work)
        return returned

    def rename(self, name: str) -> None:
        self._thread.name = name

    def end(self) -> None:
        self._work.put(None)

    def _main(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work  # and with it the arguments of the handler


def _caught(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return function(), None
    except BaseException as error:
        return None, error


def _set(returned: Returned, outcome: tuple[Any, BaseException | None]) -> None:
    if not returned.done():
        returned.set_result(outcome)
