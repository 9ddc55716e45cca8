"""Readers of events: two whose connections are cut, one whose process is killed, a naive one."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from typing import Final

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.db.transaction import repeated
from flowfabric.engine.engine import Engine
from flowfabric.engine.events.cursor import cursor_to_hex, decode_cursor, encode_cursor
from flowfabric.errors import StreamDisconnected
from tests.proofs.outbox_gap.subscriber import Seen

FROM_START: Final = encode_cursor(0)
CHECKPOINT: Final = 64
SUBSCRIBER: Final = "tests.proofs.outbox_gap.subscriber"


class Reader(ABC):
    """Keeps what it sees, in the order in which it saw it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: list[Seen] = []
        self.interruptions = 0

    @abstractmethod
    async def follow(self) -> None:
        """Read from the first event on, until it is cancelled."""

    def has_seen(self, event_id: int) -> bool:
        """Has it come so far?"""
        return bool(self.seen) and self.seen[-1].event_id >= event_id


class LeaseReader(Reader):
    """Subscribes again with the cursor that its disconnected subscription left it."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("whose connections are cut")
        self._engine = engine

    async def follow(self) -> None:
        cursor = FROM_START
        while True:
            subscription = await repeated(
                lambda cursor=cursor: self._engine.subscribe_lease_history(cursor)
            )
            async with subscription:
                try:
                    async for event in subscription:
                        self.seen.append(Seen.of(event))
                except StreamDisconnected as lost:
                    self.interruptions += 1
                    cursor = lost.cursor


class CompletionReader(Reader):
    """Subscribes once; its subscription goes on by itself."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("of completions, whose connections are cut")
        self._engine = engine

    async def follow(self) -> None:
        subscription = await repeated(lambda: self._engine.subscribe_completions(FROM_START))
        async with subscription:
            async for event in subscription:
                self.seen.append(Seen.of(event))


class KilledReader(Reader):
    """A process that keeps a checkpoint; what it saw after its checkpoint dies with it."""

    def __init__(self, dsn: str) -> None:
        super().__init__("whose process is killed, from its last checkpoint on")
        self._dsn = dsn
        self._process: asyncio.subprocess.Process | None = None
        self.again = 0
        """Events that died with a process."""

    async def follow(self) -> None:
        while True:
            cursor = self.seen[-1].cursor if self.seen else FROM_START
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                SUBSCRIBER,
                self._dsn,
                cursor_to_hex(cursor),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                await self._read(process)
            except asyncio.CancelledError:
                process.kill()
                raise
            finally:
                await process.wait()
            self.again += self.unsaved
            del self.seen[len(self.seen) - self.unsaved :]
            self.interruptions += 1

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if self._process is None:
                return
            self.seen.append(msgspec.json.decode(line, type=Seen))

    @property
    def unsaved(self) -> int:
        """How many events it has seen since its last checkpoint."""
        return len(self.seen) % CHECKPOINT

    def kill(self) -> None:
        """The process is gone, without a word."""
        process, self._process = self._process, None
        assert process is not None
        process.kill()


class NaiveReader(Reader):
    """Asks for ids above the last one that it saw: what no reader may do."""

    def __init__(self, db: Connection) -> None:
        super().__init__('that asks for "id > last"')
        self._db = db

    async def follow(self) -> None:
        last = 0
        while True:
            rows = await self._db.fetch(
                "SELECT event_id FROM ff.lease_event WHERE event_id > $1 ORDER BY event_id", last
            )
            for row in rows:
                last = row["event_id"]
                self.seen.append(Seen(last, encode_cursor(last), "", ""))
            await asyncio.sleep(0.005)


class Joiner:
    """Subscribes from now on, in the middle of it, and notes what its cursor leaves behind."""

    EARLIER: Final = "SELECT count(*) FROM ff.lease_event WHERE event_id <= $1"

    def __init__(self, engine: Engine, db: Connection) -> None:
        self._engine, self._db = engine, db
        self._left: list[tuple[int, int]] = []

    @property
    def joins(self) -> int:
        """How many subscriptions began after the first event."""
        return sum(position > 0 for position, _ in self._left)

    async def join(self) -> None:
        """One subscription, as long as it takes to look."""
        async with await self._engine.subscribe_lease_history() as events:
            position = decode_cursor(events.cursor) or 0
            self._left.append((position, await self._db.fetchval(self.EARLIER, position)))

    async def missed(self) -> int:
        """Events behind a cursor that were committed after its subscription had begun."""
        return sum(
            [
                await self._db.fetchval(self.EARLIER, position) - left
                for position, left in self._left
            ]
        )
