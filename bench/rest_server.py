"""Server processes that `python -m bench rest` measures, and the CPU time that they use."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

TOKEN: Final = "ff-bench"
HEADERS: Final = {"authorization": f"Bearer {TOKEN}"}
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """The seconds that a process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def machine_seconds() -> float:
    """The seconds that all processes of the machine together have computed so far."""
    user, nice, system, _, _, irq, softirq, *_ = (
        int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / _TICKS


class Server:
    """A server that answers at `url`."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process, self.url = process, url

    @property
    def pids(self) -> list[int]:
        """The processes that answer: the children, if the process is only their supervisor."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(each) for each in children] or [pid]

    def cpu(self) -> list[float]:
        """The seconds that each of the processes has computed so far."""
        return [cpu_seconds(each) for each in self.pids]


@contextlib.asynccontextmanager
async def serving(dsn: str, *, processes: int = 1) -> AsyncGenerator[Server]:
    """A server over the database, which ends with the block."""
    command = ("flowfabric.cli", "server", "--listen", "127.0.0.1:0", "--processes", str(processes))
    environment = {
        "FF_DATABASE_URL": dsn,
        "FF_API_TOKEN": TOKEN,
        "FF_LIMITS": "requests=1000,rate=100000,burst=100000,streams=1000",
    }
    async with _started(*command, processes=processes, **environment) as server:
        yield server


@contextlib.asynccontextmanager
async def serving_bare() -> AsyncGenerator[Server]:
    """A server whose application does nothing: what is left is the protocol and the sockets."""
    async with _started("bench.bare_server") as server:
        yield server


@contextlib.asynccontextmanager
async def _started(
    module: str, *arguments: str, processes: int = 1, **environment: str
) -> AsyncGenerator[Server]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        env={**os.environ, **environment},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    reading: asyncio.Task[bytes] | None = None
    try:
        urls: list[str] = []
        while len(urls) < processes:
            line = (await process.stderr.readline()).decode()
            if not line:
                raise RuntimeError("the server did not start")
            urls += re.findall(r"serving at (\S+)", line)
        reading = asyncio.create_task(process.stderr.read())
        yield Server(process, urls[0])
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()
        if reading is not None:
            await reading
