"""A Postgres of our own, as durable as one in production, that is killed and started again."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

import asyncpg
import psutil

from flowfabric.db.embedded import EmbeddedPostgres
from tests.worker.facts import eventually

SETTINGS: Final = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "128MB",
    "max_connections": "100",
}
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG: Final = 1


def die_with_us() -> None:
    """For a child: however this process ends, the kernel ends the child too."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Server:
    """The server as a child of this process, so that nothing of it outlives us."""

    def __init__(self, directory: Path) -> None:
        self._data = directory / "postgres"
        with EmbeddedPostgres.start(self._data, settings=SETTINGS) as embedded:
            info = psutil.Process(int(_first_line(self._data / "postmaster.pid")))
            self._binary, self._user = info.exe(), info.username()
            self.dsn = embedded.dsn
        self._process: subprocess.Popen[bytes] | None = None
        self.outages: list[tuple[int, int]] = []
        """From when to when it was down, in milliseconds since the epoch."""

    @classmethod
    @contextlib.contextmanager
    def running(cls) -> Generator[Server]:
        """In a directory that is gone after the block, like every process of it."""
        directory = Path(tempfile.mkdtemp(prefix="flowfabric-chaos-"))
        server = None
        try:
            server = cls(directory)
            yield server
        finally:
            if server is not None:
                server.kill()
            shutil.rmtree(directory, ignore_errors=True)

    async def start(self) -> None:
        """Start it, and wait until it has recovered and answers."""
        with (self._data.parent / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220  it outlives this call
                [self._binary, "-D", self._data, "-h", "", "-k", self._data],
                user=self._user,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_us,
            )
        await eventually(self._answers, within=30)

    async def crash(self, seconds: float) -> None:
        """kill -9, some time of nothing, and a start: recovery included."""
        began = _now_ms()
        await asyncio.to_thread(self.kill)
        await asyncio.sleep(seconds)
        await self.start()
        self.outages.append((began, _now_ms()))

    async def restart(self, seconds: float) -> None:
        """A fast shutdown, which ends every session, some time of nothing, and a start."""
        assert self._process is not None
        began = _now_ms()
        self._process.send_signal(signal.SIGINT)
        await asyncio.to_thread(self._process.wait, 30)
        self._process = None
        await asyncio.sleep(seconds)
        await self.start()
        self.outages.append((began, _now_ms()))

    def kill(self) -> None:
        """kill -9 of the postmaster and of every process that it started."""
        if self._process is None:
            return
        children: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            postmaster = psutil.Process(self._process.pid)
            postmaster.suspend()
            children = postmaster.children(recursive=True)
            postmaster.kill()
        self._process.wait()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        until = time.monotonic() + 10
        while any(map(_lives, children)) and time.monotonic() < until:
            time.sleep(0.01)
        self._process = None

    async def _answers(self) -> bool:
        try:
            conn = await asyncpg.connect(self.dsn, timeout=5)
        except (OSError, asyncpg.PostgresError):
            return False
        await conn.close()
        return True


def _lives(process: psutil.Process) -> bool:
    """Not even one that nobody has buried yet does."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _first_line(path: Path) -> str:
    return path.read_text().splitlines()[0]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
