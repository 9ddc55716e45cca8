"""The child process of `executor="process"`: reads a task, runs it, writes the outcome; repeat."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, BinaryIO, cast

from flowfabric.errors import ConfigError, Fail
from flowfabric.worker.children import Children
from flowfabric.worker.context import Ctx, SyncCtx
from flowfabric.worker.environment import Environment
from flowfabric.worker.frames import HEADER, Done, Failed, Progressed, Reply, Run, framed, read_run
from flowfabric.worker.handler import failure_of
from flowfabric.worker.run_task import RunnableTask
from flowfabric.worker.running_attempt import RunningAttempt

if TYPE_CHECKING:
    from flowfabric.db.rows import Connection
    from flowfabric.engine.engine import Engine
    from flowfabric.worker.transaction import OwnTransaction


class _Pipe:
    """Frames to the parent, on a descriptor that the task's own prints do not reach."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)

    def write(self, reply: Reply) -> None:
        self._out.write(framed(reply))
        self._out.flush()


class _ChildCtx(Ctx):
    """The context in a child: progress goes through the parent, who holds the lease."""

    __slots__ = ("_pipe",)

    def __init__(self, running: RunningAttempt, state: SimpleNamespace, pipe: _Pipe) -> None:
        super().__init__(running, cast("Engine", None), state, cast("OwnTransaction", None))
        self._pipe = pipe

    async def progress(self, percent: int | None = None, message: str | None = None) -> None:
        self._pipe.write(Progressed(percent, message))

    async def transaction(self) -> Connection:
        raise Fail("a task with executor='process' cannot have a transaction", retryable=False)

    def _family(self) -> Children:
        raise Fail("a task with executor='process' cannot have children", retryable=False)

    @property
    def sync(self) -> SyncCtx:
        return _ChildSyncCtx(self, self._loop, self._pipe)


class _ChildSyncCtx(SyncCtx):
    def __init__(self, ctx: Ctx, loop: asyncio.AbstractEventLoop, pipe: _Pipe) -> None:
        super().__init__(ctx, loop)
        self._pipe = pipe

    def progress(self, percent: int | None = None, message: str | None = None) -> None:
        self._pipe.write(Progressed(percent, message))


async def _answer(wanted: Run, pipe: _Pipe, environment: Environment) -> Reply:
    running = RunningAttempt(wanted.claimed, time.monotonic())
    handler = None
    try:
        task = find_task(wanted.module, wanted.kind)
        handler = task.handler(environment)
        ctx = _ChildCtx(running, task.state, pipe)
        claimed = wanted.claimed
        return Done(await handler.run(ctx, claimed.input_payload, claimed.payload_encoding))
    except BaseException as error:
        return Failed(failure_of(error, wanted.claimed.lease, handler))


def find_task(module: str, kind: str) -> RunnableTask:
    """The task of that kind which the module defines; raises `ConfigError`."""
    for value in vars(importlib.import_module(module)).values():
        if isinstance(value, RunnableTask) and value.kind == kind:
            return value
    raise ConfigError("process", kind, f"module {module!r} has no such task")


def main() -> None:
    """Serve until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe, environment = _Pipe(), Environment()
    given: BinaryIO = sys.stdin.buffer
    with asyncio.Runner() as loop:
        while len(header := given.read(HEADER.size)) == HEADER.size:
            (length,) = HEADER.unpack(header)
            pipe.write(loop.run(_answer(read_run(given.read(length)), pipe, environment)))


if __name__ == "__main__":
    main()
