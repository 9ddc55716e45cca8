"""The worker processes that an adapter starts: child processes that run its own script."""

import argparse
import asyncio
import json
import signal
import sys
from typing import Any


class WorkerProcess:
    """A child process that runs a command of this script, `work`, between `go` and `stop`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(
        cls, options: argparse.Namespace, *extra: str, command: str = "work"
    ) -> "WorkerProcess":
        """Start the process and wait until it is connected."""
        process = await cls._spawn(options, command, *extra)
        await process.expect("ready")
        return process

    @classmethod
    async def start_many(cls, options: argparse.Namespace, *extra: str) -> "list[WorkerProcess]":
        """Start as many processes as there are `workers`; the slow imports run side by side."""
        processes = [await cls._spawn(options, "work", *extra) for _ in range(options.workers)]
        for process in processes:
            await process.expect("ready")
        return processes

    @classmethod
    async def _spawn(
        cls, options: argparse.Namespace, scenario: str, *extra: str
    ) -> "WorkerProcess":
        script = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv[1:])]
        command = [sys.executable, *script, scenario, "--dsn", options.dsn, *extra]
        for name in ("batch", "concurrency", "shape", "handler_ms", "window"):
            if (value := getattr(options, name)) is not None:
                command += [f"--{name.replace('_', '-')}", str(value)]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 24,
        )
        return cls(process)

    async def expect(self, word: str) -> None:
        """Wait for the child to print `word`."""
        assert self.process.stdout is not None
        line = (await self.process.stdout.readline()).decode().strip()
        if line != word:
            raise RuntimeError(f"worker said {line!r} instead of {word!r}")

    def go(self) -> None:
        """Let the worker begin to claim."""
        self._say("go")

    async def stop(self, grace: float = 15.0) -> dict[str, Any]:
        """Stop the worker gracefully and return its figures; kill it after `grace` seconds."""
        self._say("stop")
        try:
            out, _ = await asyncio.wait_for(self.process.communicate(), grace)
        except TimeoutError:
            self.kill()
            raise
        return json.loads(out.decode().strip().splitlines()[-1])

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)

    def _say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())
