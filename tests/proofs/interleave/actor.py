"""One operation, held before each of its statements until it is told to go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import asyncpg

from flowfabric.db.rows import Connection
from flowfabric.db.steps import stepped
from flowfabric.errors import FlowFabricError

Call = Callable[[], Coroutine[Any, Any, Any]]

RAW = frozenset({"bug", "transport", "unavailable", "resource_exhausted", "timeout"})
"""Kinds of errors that say nothing of the operation and everything of the database."""


ROUNDS = 2
"""An operation that makes the same statement more often than that waits by looking again."""


class Actor:
    """Runs `call`; `ready` while it is held, `done` once `answer` is there, else under way."""

    def __init__(self, call: Call) -> None:
        self.steps: list[str] = []
        self.pid = 0
        self.answer: Any = None
        self._go: asyncio.Future[None] | None = None
        self.settled = asyncio.Event()
        self._task = asyncio.create_task(self._run(call))

    @property
    def done(self) -> bool:
        return self._task.done()

    @property
    def ready(self) -> bool:
        return self._go is not None

    @property
    def polls(self) -> bool:
        """Does it look again and again for what another has to do first?"""
        return self.ready and self.steps.count(self.steps[-1]) > ROUNDS

    @property
    def under_way(self) -> bool:
        return not self.settled.is_set()

    def go(self) -> None:
        """Let it run its next statement."""
        assert self._go is not None
        self.settled.clear()
        self._go.set_result(None)
        self._go = None

    async def _step(self, conn: Connection, name: str) -> None:
        self.steps.append(name)
        self.pid = conn.get_server_pid()
        self._go = asyncio.get_running_loop().create_future()
        self.settled.set()
        await self._go

    async def _run(self, call: Call) -> None:
        try:
            with stepped(self._step):
                self.answer = await call()
        except Exception as error:
            self.answer = error
        finally:
            asyncio.get_running_loop().call_soon(self.settled.set)

    async def close(self) -> None:
        """Give it up, wherever it is."""
        self._task.cancel()
        await asyncio.wait((self._task,))


def is_raw(answer: Any) -> bool:
    """Is it an error of the database that no caller should see?"""
    if not isinstance(answer, FlowFabricError):
        return isinstance(answer, Exception)
    return answer.kind in RAW or isinstance(answer.__cause__, asyncpg.PostgresError)


def told(answer: Any) -> str:
    """An answer as text."""
    if isinstance(answer, Exception):
        return f"{type(answer).__name__}: {answer}"
    return repr(answer)
