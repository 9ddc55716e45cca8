"""Dispatchers that are processes, and are killed as processes are.

A new interpreter for each would take half a second, so one that has everything loaded stands by and
forks: `python -m tests.proofs.dispatcher`. A fork opens a connection of its own and does one step
after the other, each in a transaction, until it comes to the statement that it is to die at. Then
it is killed by SIGKILL, before the statement is sent or while the server works at it. The server
finds out by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from typing import Any, NoReturn

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection
from flowfabric.db.steps import stepped
from flowfabric.db.transaction import transact
from tests.engine.flows.cascades import STEPS, moved


class Order(msgspec.Struct, frozen=True):
    """One step of a dispatcher, and where it dies; at `die_at` 0 it lives."""

    dsn: str
    step: str
    limit: int
    die_at: int = 0
    after: float | None = None
    """Seconds from the moment that the statement is sent; None kills before it is sent."""


class Report(msgspec.Struct):
    """What became of one dispatcher."""

    ran: list[str] = msgspec.field(default_factory=list[str])
    """Its statements, the one that it died at the last."""
    backend: int = 0
    """The process of the server that served it."""
    killed: bool = False
    answer: int = 0
    """How much it moved, if it lived to tell."""
    error: str = ""


class Dispatchers:
    """The process that stands by, and the dispatcher that it has forked last."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls) -> Dispatchers:
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                __name__,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        )

    async def run(self, order: Order) -> Report:
        """Have a dispatcher do a step; how it went, once that is done or the process is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        await self._process.stdin.drain()
        return msgspec.json.decode(await self._process.stdout.readline(), type=Report)

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


class _Fork:
    """A forked process; it tells each thing as it comes, because it may not come far."""

    def __init__(self, orders: int, tell: int) -> None:
        self._orders, self._tell = os.fdopen(orders, "rb"), tell
        self._order = Order(dsn="", step="", limit=0)
        self._number = 0

    async def run(self) -> None:
        pool: Pool | None = None
        for line in self._orders:
            order = self._order = msgspec.json.decode(line, type=Order)
            self._number = 0
            if pool is None:
                config = DatabaseConfig(dsn=order.dsn, pool_size=1)
                pool = await Pool.open(config, role="dispatcher")
            with stepped(self._step):
                answer = await transact(pool, order.step, self._does)
            self.tell("answer", moved(answer))

    async def _does(self, conn: Connection) -> Any:
        return await STEPS[self._order.step](conn, self._order.limit)

    async def _step(self, conn: Connection, name: str) -> None:
        self._number += 1
        self.tell("ran", name)
        if self._number == 1:
            self.tell("backend", conn.get_server_pid())
        if self._number == self._order.die_at:
            if self._order.after is None:
                _die()
            threading.Thread(target=_die, args=(self._order.after,)).start()

    def tell(self, what: str, value: Any) -> None:
        os.write(self._tell, msgspec.json.encode((what, value)) + b"\n")


def _die(after: float = 0.0) -> None:
    time.sleep(after)
    os.kill(os.getpid(), signal.SIGKILL)


class _Child:
    """A fork, seen by the process that stands by."""

    def __init__(self) -> None:
        ordered, self._orders = os.pipe()
        self._heard, told = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._orders)
            os.close(self._heard)
            _live(_Fork(ordered, told))
        os.close(ordered)
        os.close(told)
        self._lines = os.fdopen(self._heard, "rb")

    def ordered(self, order: bytes) -> Report:
        report = Report()
        with contextlib.suppress(BrokenPipeError):
            os.write(self._orders, order)
        for line in self._lines:
            what, value = msgspec.json.decode(line)
            if what == "ran":
                report.ran.append(value)
            else:
                setattr(report, what, value)
            if what in ("answer", "error"):
                return report
        self._bury()
        report.killed = True
        return report

    def _bury(self) -> None:
        os.close(self._orders)
        self._lines.close()
        os.waitpid(self._pid, 0)

    def end(self) -> None:
        """It finds no more orders."""
        self._bury()


def _live(fork: _Fork) -> NoReturn:
    try:
        asyncio.run(fork.run())
    except BaseException as error:
        fork.tell("error", repr(error))
    os._exit(0)


def main() -> None:
    """An order a line, a report a line."""
    child: _Child | None = None
    for line in sys.stdin.buffer:
        report = Report()
        while not report.ran and not report.error:  # the last one was killed after it had answered
            child = child or _Child()
            report = child.ordered(line)
            if report.killed:
                child = None
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()
    if child is not None:
        child.end()


if __name__ == "__main__":
    main()
