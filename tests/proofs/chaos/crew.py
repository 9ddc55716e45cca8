"""The worker processes of a run: killed, frozen, and replaced as a supervisor would."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from tests.proofs.chaos.server import die_with_us


class Blow(msgspec.Struct, frozen=True):
    """A fault that hit one worker process, and when, in milliseconds since the epoch."""

    instance: str
    began_ms: int
    ended_ms: int


class Crew:
    """One place of the crew: each worker that fills it has a name of its own."""

    def __init__(self, place: int, dsn: str, directory: Path, ttl: float) -> None:
        self.place, self._dsn, self._directory, self._ttl = place, dsn, directory, ttl
        self._turn = 0
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._stopping = False
        self.frozen = False
        self.blows: list[Blow] = []
        self.gave_up: list[str] = []
        """Who ended without being told to."""

    @property
    def instance(self) -> str:
        return f"w{self.place}-{self._turn}"

    async def start(self) -> None:
        """Somebody new takes the place."""
        self._turn += 1
        settings = {
            "worker_instance_id": self.instance,
            "concurrency": 8,
            "lease_ttl": self._ttl,
            "lease_history": "full",
        }
        with (self._directory / f"{self.instance}.log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.proofs.chaos.shop",
                self._dsn,
                str(self._directory / "starts"),
                json.dumps(settings),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_us,
            )
        self._watch = asyncio.create_task(self._replace(self._process))

    async def kill(self) -> None:
        """kill -9; the place is filled again at once."""
        assert self._process is not None
        self.hit()
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()

    async def freeze(self, seconds: float) -> None:
        """It stands still, with all its threads, and then goes on as if nothing had been."""
        assert self._process is not None
        began, self.frozen = _now_ms(), True
        self._process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._process.send_signal(signal.SIGCONT)
            self.frozen = False
            self.blows.append(Blow(self.instance, began, _now_ms()))

    def hit(self) -> None:
        """The worker at this place has lost something now."""
        self.blows.append(Blow(self.instance, _now_ms(), _now_ms()))

    async def stop(self) -> int:
        """End it in order; its exit code."""
        assert self._process is not None
        self._stopping = True
        self._process.terminate()
        return await asyncio.wait_for(self._process.wait(), 20)

    async def close(self) -> None:
        """Nobody is left, however the run went."""
        self._stopping = True
        if self._watch is not None:
            self._watch.cancel()
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    async def _replace(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        if not self._stopping:
            if code != -signal.SIGKILL:
                self.gave_up.append(self.instance)
            await asyncio.sleep(0.1)
            await self.start()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
