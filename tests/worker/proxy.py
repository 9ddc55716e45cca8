"""A line to the database that a test can cut, silence and mend."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from tests.forwarder import Forwarder


class Proxy(Forwarder):
    """Forwards connections to the database of a DSN; `dsn` leads through it."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self._lines: set[asyncio.StreamWriter] = set()
        self._jobs: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._cut = False
        self.held_up = 0
        """How often somebody met the cut or the silence."""
        self.arrivals: list[float] = []
        """When connections were opened, by the clock of this machine."""
        self._lose_when: Callable[[], Awaitable[bool]] | None = None
        self._asking = asyncio.Lock()

    async def stop(self) -> None:
        self.cut()
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    def cut(self) -> None:
        """Close every line, and close new ones at once."""
        self._cut = True
        for line in self._lines:
            line.close()

    def silence(self) -> None:
        """Let nothing through any more, without a word to either side."""
        self._flowing.clear()

    def lose_answer(self, when: Callable[[], Awaitable[bool]]) -> None:
        """Cut every line once, at the first answer that comes when `when` is true."""
        self._lose_when = when

    def mend(self) -> None:
        """Everything flows again."""
        self._cut = False
        self._flowing.set()

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.arrivals.append(time.monotonic())
        if self._cut:
            self.held_up += 1
            writer.close()
            return
        there_reader, there_writer = await self.connect()
        self._lines |= {writer, there_writer}
        pumps = (
            asyncio.create_task(self._pump(reader, there_writer)),
            asyncio.create_task(self._pump(there_reader, writer, answers=True)),
        )
        self._jobs |= set(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for line in (writer, there_writer):
            line.close()
            self._lines.discard(line)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False
    ) -> None:
        with contextlib.suppress(ConnectionError, OSError):
            while data := await reader.read(65536):
                if not self._flowing.is_set():
                    self.held_up += 1
                    await self._flowing.wait()
                if answers and await self._loses_this_one():
                    self.cut()
                    self.mend()
                writer.write(data)
                await writer.drain()

    async def _loses_this_one(self) -> bool:
        """The first answer that comes when `when` is true, and no other; one asks at a time."""
        if self._lose_when is None:
            return False
        async with self._asking:
            if self._lose_when is None or not await self._lose_when():
                return False
            self._lose_when = None
            return True
