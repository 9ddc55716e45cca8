"""Child processes for tasks that keep the interpreter busy: `executor="process"`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import Final

from flowfabric.errors import Fail, LeaseLost
from flowfabric.worker.context import Ctx
from flowfabric.worker.forwarded_logs import current_levels, replay_log
from flowfabric.worker.frames import (
    HEADER,
    Done,
    Emitted,
    Failed,
    Logged,
    Progressed,
    Reply,
    Run,
    Troubled,
    Upstreams,
    UpstreamsWanted,
    framed,
    read_reply,
)
from flowfabric.worker.handler import EncodedResult, Reported

_LIMIT: Final = 2**30


class ProcessPool:
    """At most `size` child processes, started when needed and used again."""

    def __init__(self, size: int | None = None) -> None:
        self._free = asyncio.Semaphore(size or os.cpu_count() or 1)
        self._idle: list[_Child] = []

    async def run(self, ctx: Ctx, module: str) -> EncodedResult:
        """The result of the context's execution, run in a child process that imports `module`.

        Cancelling kills the child process, so that the task really stops. If the process dies the
        attempt fails as `infra_crash`.
        """
        async with self._free:
            child = self._idle.pop() if self._idle else await _Child.start()
            try:
                result = await child.run(ctx, Run(module, ctx.kind, ctx.claimed))
            except Reported:
                self._idle.append(child)
                raise
            except BaseException:
                child.kill()
                raise
            self._idle.append(child)
            return result

    async def close(self) -> None:
        for child in self._idle:
            await child.close()
        self._idle.clear()


class _Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls) -> _Child:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "flowfabric.worker.child_process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            limit=2**20,
        )
        assert process.stdin is not None
        process.stdin.write(framed(current_levels()))
        return cls(process)

    async def run(self, ctx: Ctx, request: Run) -> EncodedResult:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(framed(request))
            await stdin.drain()
            while True:
                match await self._reply():
                    case Done(result, encoding):
                        return EncodedResult(result, encoding)
                    case Failed(failure):
                        raise Reported(failure)
                    case Troubled(trouble):
                        raise Reported(trouble)
                    case Logged() as logged:
                        replay_log(logged)
                    case UpstreamsWanted():
                        upstreams = await ctx._upstream_results()  # pyright: ignore[reportPrivateUsage]
                        stdin.write(framed(Upstreams(upstreams)))
                    case Progressed(percent, message):
                        with contextlib.suppress(LeaseLost):
                            await ctx.progress(percent, message)
                    case Emitted(frame):
                        with contextlib.suppress(LeaseLost):
                            await ctx._append(frame)  # pyright: ignore[reportPrivateUsage]
        except (asyncio.IncompleteReadError, BrokenPipeError, ConnectionResetError):
            code = await self._process.wait()
            raise Fail(f"the process of the task {_end(code)}", category="infra_crash") from None

    async def _reply(self) -> Reply:
        stdout = self._process.stdout
        assert stdout is not None
        (length,) = HEADER.unpack(await stdout.readexactly(HEADER.size))
        if length > _LIMIT:
            raise Fail(f"a result of {length} bytes is too large", retryable=False)
        return read_reply(await stdout.readexactly(length))

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(2.0):
                await self._process.wait()
        except TimeoutError:
            self.kill()


def _end(code: int) -> str:
    """How a process with this return code ended, in words."""
    if code >= 0:
        return f"ended with {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
