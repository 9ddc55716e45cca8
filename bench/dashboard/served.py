"""A server of its own process, with its CPU time and memory."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import httpx
import psutil

START_WITHIN: Final = 30.0
STOP_WITHIN: Final = 30.0


class Served:
    """The address of a server, and what its process has used."""

    def __init__(self, base: str, process: asyncio.subprocess.Process) -> None:
        self.base = base
        self._child = process
        self._process = psutil.Process(process.pid)

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        times = self._process.cpu_times()
        return times.user + times.system

    async def stop(self) -> float:
        """Stop it by SIGTERM; the seconds until the process has ended."""
        began = time.monotonic()
        self._child.send_signal(signal.SIGTERM)
        await asyncio.wait_for(self._child.wait(), STOP_WITHIN)
        return time.monotonic() - began

    def memory(self) -> float:
        """Kilobytes that it holds."""
        return self._process.memory_info().rss / 1024


@asynccontextmanager
async def served(dsn: str) -> AsyncGenerator[Served]:
    """`ff server` on this database; stopped by SIGTERM."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "FF_DATABASE_URL": dsn, "FF_LISTEN": f"127.0.0.1:{port}"}
    environment.pop("FF_API_TOKEN", None)
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "flowfabric.cli",
            "server",
            "--no-sweeps",
            "--log-level",
            "warning",
        ),
        env=environment,
    )
    try:
        base = f"http://127.0.0.1:{port}/ui"
        await _answers(base)
        yield Served(base, process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), STOP_WITHIN)


async def _answers(base: str) -> None:
    deadline = time.monotonic() + START_WITHIN
    async with httpx.AsyncClient() as client:
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if (await client.get(f"{base}/lanes")).status_code in (200, 303):
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{base} did not answer within {START_WITHIN:.0f} s")
            await asyncio.sleep(0.1)
