"""A line to the database that loses the answer to a commit: the work is done, nobody is told."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator

from tests.forwarder import Forwarder

_IDLE = b"I"
_LET_IN = bytes(4)
_CLEAR = b"Q" + (4 + len(b"DEALLOCATE ALL") + 1).to_bytes(4, "big") + b"DEALLOCATE ALL\0"


class LossyLine(Forwarder):
    """Forwards connections, and loses the answer that it is told to.

    The server's side of a line that was cut goes to the next client, as behind a pooler: thousands
    of cuts then cost no thousands of new server processes.
    """

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self._jobs: set[asyncio.Task[None]] = set()
        self._parked: dict[bytes, list[_Session]] = {}
        self._pass_first = -1
        self.lost = 0
        """Answers that did not arrive."""

    async def stop(self) -> None:
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        for session in itertools.chain(*self._parked.values()):
            session.writer.close()

    def lose(self, *, after: int = 0) -> None:
        """Cut the line at the next answer to a commit, or `after` so many that arrive."""
        self._pass_first = after

    def mend(self) -> None:
        """Lose nothing more."""
        self._pass_first = -1

    def is_to_be_lost(self) -> bool:
        """A transaction was committed; is its answer the one?"""
        if self._pass_first < 0:
            return False
        self._pass_first -= 1
        self.lost += self._pass_first < 0
        return self._pass_first < 0

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        job = asyncio.current_task()
        assert job is not None
        self._jobs.add(job)
        try:
            with contextlib.suppress(
                ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError
            ):
                startup = await _startup(reader)
                session = await self._session(startup, writer)
                if await session.talk(reader, writer):
                    self._parked.setdefault(startup, []).append(session)
                else:
                    session.writer.close()
        finally:
            self._jobs.discard(job)
            writer.close()

    async def _session(self, startup: bytes, writer: asyncio.StreamWriter) -> _Session:
        """A session that somebody lost, cleared of what he left in it, or else a new one."""
        if not (parked := self._parked.get(startup)):
            session = _Session(self, *await self.connect())
            session.writer.write(startup)
            return session
        session = parked.pop()
        await session.clear()
        writer.write(session.greeting)
        return session


class _Session:
    """One session of the server: what is asked in it, and what is answered.

    A transaction of ours is committed once the server is ready and in no transaction after a
    COMMIT or a statement that carries its name. What the driver asks for itself has none.
    """

    def __init__(
        self, line: LossyLine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._line, self.reader, self.writer = line, reader, writer
        self._statements: dict[bytes, bytes] = {}
        self._asked = b""
        self._greeted = False
        self.greeting = b""
        """What the server says once it has let somebody in."""

    async def clear(self) -> None:
        """Nothing of its last client is left in it."""
        self._statements.clear()
        self.writer.write(_CLEAR)
        answer = b""
        while not any(kind == b"Z" for kind, _, _ in _messages(answer)):
            answer += await self.reader.read(65536)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Carry both ways until one side ends; was it by the loss of an answer?"""
        ask = asyncio.create_task(self._ask(reader))
        answer = asyncio.create_task(self._answer(writer))
        try:
            await asyncio.wait((ask, answer), return_when=asyncio.FIRST_COMPLETED)
            return answer.done() and answer.result()
        finally:
            for pump in (ask, answer):
                pump.cancel()
            await asyncio.gather(ask, answer, return_exceptions=True)

    async def _ask(self, reader: asyncio.StreamReader) -> None:
        pending = b""
        while data := await reader.read(65536):
            pending += data
            passed = 0
            for kind, body, end in _messages(pending):
                self._note(kind, body)
                passed = end
            self.writer.write(pending[:passed])
            pending = pending[passed:]
            await self.writer.drain()

    def _note(self, kind: bytes, body: bytes) -> None:
        match kind:
            case b"P":
                name, text, _ = body.split(b"\0", 2)
                self._statements[name] = text
            case b"B":
                self._asked = self._statements.get(body.split(b"\0", 2)[1], b"")
            case b"Q":
                self._asked = body
            case _:
                pass

    async def _answer(self, writer: asyncio.StreamWriter) -> bool:
        """Pass on whole messages; the end of a command waits until it is known what it ended."""
        pending, ended = b"", False
        while data := await self.reader.read(65536):
            pending += data
            passed = begun = 0
            for kind, body, end in _messages(pending):
                if kind == b"C":
                    ended = self._asked.lstrip().startswith((b"-- ", b"COMMIT"))
                elif kind == b"Z":
                    if ended and body == _IDLE and self._line.is_to_be_lost():
                        return True
                    ended = False
                if not ended:
                    passed = end
                self._note_greeting(kind, body, pending[begun:end])
                begun = end
            writer.write(pending[:passed])
            pending = pending[passed:]
            await writer.drain()
        return False

    def _note_greeting(self, kind: bytes, body: bytes, message: bytes) -> None:
        if not self._greeted and (self.greeting or (kind, body) == (b"R", _LET_IN)):
            self.greeting += message
            self._greeted = kind == b"Z"


async def _startup(reader: asyncio.StreamReader) -> bytes:
    """The first message, which has no kind."""
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length, "big") - 4)


def _messages(data: bytes) -> Iterator[tuple[bytes, bytes, int]]:
    """Kind, body and end of every message that is there as a whole."""
    at = 0
    while at + 5 <= len(data):
        end = at + 1 + int.from_bytes(data[at + 1 : at + 5], "big")
        if end > len(data):
            return
        yield data[at : at + 1], data[at + 5 : end], end
        at = end
