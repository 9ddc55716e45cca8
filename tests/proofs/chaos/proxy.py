"""A line to the database that is cut at will: between two statements, before one, or after it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Literal

import msgspec

from tests.forwarder import Forwarder, Streams
from tests.proofs.chaos.wire import Answers, Requests


class Trap(msgspec.Struct, frozen=True):
    """Cut the line that runs `statement` next: before it is sent on, or after it was carried out
    and before its answer is."""

    statement: str
    when: Literal["before", "after"]


class Proxy(Forwarder):
    """Forwards connections until they are cut."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self._lines: set[_Line] = set()
        self._traps: list[Trap] = []
        self.sprung: Counter[str] = Counter()
        """How many lines were cut, by how."""
        self.cuts_ms: list[int] = []
        """When, in milliseconds since the epoch."""

    async def stop(self) -> None:
        self.cut()

    def cut(self) -> None:
        """Cut every line as it is; new ones are forwarded again."""
        for line in self._lines:
            line.abort()
            self.note("cut")

    def set_trap(self, trap: Trap) -> None:
        """It springs once, on whatever line comes by first."""
        self._traps.append(trap)

    def clear_traps(self) -> None:
        self._traps.clear()

    def note(self, how: str) -> None:
        self.sprung[how] += 1
        self.cuts_ms.append(time.time_ns() // 1_000_000)

    def step_on(self, statements: list[str]) -> Trap | None:
        """The trap that one of the statements sets off."""
        for trap in self._traps:
            if trap.statement in statements:
                self._traps.remove(trap)
                return trap
        return None

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await self.connect()
        except OSError:
            writer.transport.abort()
            return
        line = _Line(self, (reader, writer), there)
        self._lines.add(line)
        try:
            await line.carry()
        finally:
            self._lines.discard(line)


class _Line:
    """One connection, from the client to the server and back."""

    def __init__(self, proxy: Proxy, client: Streams, server: Streams) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._requests, self._answers = Requests(), Answers()
        self._losing = False

    async def carry(self) -> None:
        """Until either side hangs up, or the line is cut."""
        pumps = [asyncio.ensure_future(pump()) for pump in (self._ask, self._answer)]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.abort()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    def abort(self) -> None:
        for _, writer in (self._client, self._server):
            writer.transport.abort()

    async def _ask(self) -> None:
        reader, writer = self._client[0], self._server[1]
        while data := await reader.read(65536):
            trap = self._proxy.step_on(self._requests.feed(data))
            if trap is not None and trap.when == "before":
                self._proxy.note("before")
                return
            self._losing |= trap is not None
            writer.write(data)
            await writer.drain()

    async def _answer(self) -> None:
        reader, writer = self._server[0], self._client[1]
        while data := await reader.read(65536):
            ready = self._answers.feed(data)
            if self._losing and ready:
                self._proxy.note("after" if ready.endswith(b"I") else "inside")
                return
            if not self._losing:
                writer.write(data)
                await writer.drain()
