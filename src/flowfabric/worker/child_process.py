"""The child process of `executor="process"`: reads requests, runs the tasks, writes replies."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, BinaryIO, NoReturn, cast

from flowfabric.engine.lifecycle.release_after_trouble import Trouble
from flowfabric.errors import ConfigError, Fail
from flowfabric.worker.context import Ctx, SyncCtx
from flowfabric.worker.durable.calls import DurableCalls
from flowfabric.worker.environment import Environment
from flowfabric.worker.forwarded_logs import start_forwarding
from flowfabric.worker.frames import (
    Done,
    Emitted,
    Failed,
    LogLevels,
    Progressed,
    Reply,
    Request,
    Run,
    Troubled,
    Upstreams,
    UpstreamsWanted,
    framed,
    read_request,
)
from flowfabric.worker.handler import outcome_of
from flowfabric.worker.log_context import set_log_context
from flowfabric.worker.run_task import RunnableTask
from flowfabric.worker.running_attempt import RunningAttempt
from flowfabric.worker.upstreams import ResultReader

if TYPE_CHECKING:
    from flowfabric.db.rows import Connection
    from flowfabric.engine.joins.read_upstream_results import UpstreamResult
    from flowfabric.engine.streams.frame import NewFrame
    from flowfabric.remote.engine_like import EngineLike
    from flowfabric.worker.durable.durable import LazyDurable
    from flowfabric.worker.frame_writer import FrameWriter
    from flowfabric.worker.transaction import HandlerTransaction


class _Pipe:
    """Frames from and to the worker: on stdin, and on a copy of stdout.

    What the task prints goes to stderr instead.
    """

    def __init__(self) -> None:
        self._in: BinaryIO = sys.stdin.buffer
        self.asking = asyncio.Lock()
        self._writing = threading.Lock()
        self._out = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)

    def write(self, reply: Reply) -> None:
        frame = framed(reply)
        with self._writing:  # any thread of the task may log or report progress
            self._out.write(frame)
            self._out.flush()

    def read(self) -> Request | None:
        """The next frame from the worker; None once it has closed the pipe."""
        return read_request(self._in)


class _ChildCtx(Ctx):
    """The context in a child process: its calls are made by the worker, which holds the lease."""

    __slots__ = ("_pipe",)

    def __init__(
        self,
        attempt: RunningAttempt,
        state: SimpleNamespace,
        pipe: _Pipe,
        readers: Mapping[str, ResultReader],
    ) -> None:
        no_engine, no_transaction = cast("EngineLike", None), cast("HandlerTransaction", None)
        no_durable = cast("LazyDurable", None)
        no_frames = cast("FrameWriter", None)
        super().__init__(attempt, no_engine, state, no_transaction, readers, no_durable, no_frames)
        self._pipe = pipe

    async def progress(self, percent: int | None = None, message: str | None = None) -> None:
        self._pipe.write(Progressed(percent, message))

    async def _append(self, frame: NewFrame) -> None:
        self._pipe.write(Emitted(frame))

    async def _upstream_results(self) -> list[UpstreamResult]:
        async with self._pipe.asking:
            self._pipe.write(UpstreamsWanted())
            answer = await asyncio.to_thread(self._pipe.read)
        assert isinstance(answer, Upstreams), answer
        return answer.results

    async def transaction(self) -> Connection:
        raise Fail("a task with executor='process' cannot have a transaction", retryable=False)

    def _own_children(self) -> NoReturn:
        raise Fail("a task with executor='process' cannot have children", retryable=False)

    def _durable_calls(self) -> NoReturn:
        why = "a task with executor='process' cannot make durable calls"
        raise ConfigError("task", self.kind, why)

    @property
    def sync(self) -> SyncCtx:
        return _ChildSyncCtx(self, self._loop, self._pipe)


class _ChildSyncCtx(SyncCtx):
    def __init__(self, ctx: Ctx, loop: asyncio.AbstractEventLoop, pipe: _Pipe) -> None:
        super().__init__(ctx, loop)
        self._pipe = pipe

    def _calls(self) -> DurableCalls:
        return self._ctx  # which refuses them

    def progress(self, percent: int | None = None, message: str | None = None) -> None:
        self._pipe.write(Progressed(percent, message))


async def _reply(request: Run, pipe: _Pipe, environment: Environment) -> Reply:
    claimed, handler = request.claimed, None
    try:
        task = find_task(request.module, request.kind)
        handler = task.handler(environment)
        set_log_context(claimed)
        readers = {each.kind: each.read_result for each in tasks_of(request.module)}
        attempt = RunningAttempt(claimed, time.monotonic())
        ctx = _ChildCtx(attempt, task.state, pipe, readers)
        result = await handler.run(ctx, claimed.input_payload, claimed.payload_encoding)
        return Done(result.data, result.encoding)
    except BaseException as error:
        outcome = outcome_of(error, claimed.lease, handler)
        return Troubled(outcome) if isinstance(outcome, Trouble) else Failed(outcome)


def find_task(module: str, kind: str) -> RunnableTask:
    """The task of this kind that the module defines; raises `ConfigError` without one."""
    for task in tasks_of(module):
        if task.kind == kind:
            return task
    raise ConfigError("process", kind, f"module {module!r} has no such task")


def tasks_of(module: str) -> list[RunnableTask]:
    """The tasks that the module defines or imports."""
    values = vars(importlib.import_module(module)).values()
    return [value for value in values if isinstance(value, RunnableTask)]


def main() -> None:
    """Run tasks until the worker closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe, environment = _Pipe(), Environment()
    with asyncio.Runner() as loop:
        while (request := pipe.read()) is not None:
            if isinstance(request, LogLevels):
                start_forwarding(request, pipe.write)
            elif isinstance(request, Run):
                pipe.write(loop.run(_reply(request, pipe, environment)))


if __name__ == "__main__":
    main()
