"""G3: a worker stops its handlers before their leases run out, however late it was answered.

A lease runs from the moment that the database granted it. A worker does not know that moment, only
when it asked and when it was answered; between the two lies whatever the network needs. So one
answer is held back for almost as long as the worker waits for one, and after it nothing comes
through any more: the handlers must have stopped while nobody else can have the execution.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from flowfabric import App, Client, Ctx
from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from tests.forwarder import Forwarder, Streams
from tests.proofs.arena import Arena
from tests.proofs.chaos.wire import Answers, Requests
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.worker.facts import eventually

TTL: Final = 4.0
LATE: Final = 0.28
"""The share of the TTL that an answer is held back; a worker waits for a third of the TTL."""
SLOTS: Final = 4
STATEMENTS: Final = {"claim": "lifecycle.claim", "renewal": "lifecycle.renew"}

LEFT: Final = """
SELECT lease_expires_at_ms / 1000.0 - $2 AS seconds
  FROM ff.execution WHERE execution_id = $1
"""
HELD: Final = """
SELECT count(*) FROM ff.execution e JOIN ff.route r USING (route_id)
 WHERE r.lane_id = $1 AND e.lifecycle_phase = 'active'
"""

app: Final = App()
stopped: Final[dict[str, float]] = {}
"""When the handler of each execution stopped, by the clock that this machine's database has too."""


@app.task("hold")
async def hold(ctx: Ctx) -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        stopped[str(ctx.execution_id)] = time.time()


class LateLine(Forwarder):
    """Holds back the answer to one statement; after that nothing comes through until `mend`."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.statement, self.seconds = "", 0.0
        self.late = 0
        self._gone = False
        self._writers: set[asyncio.StreamWriter] = set()

    async def stop(self) -> None:
        self.mend()

    def mend(self) -> None:
        """New connections are carried again; the old ones are cut."""
        self._gone, self.statement = False, ""
        for writer in self._writers:
            writer.transport.abort()

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await self.connect()
        self._writers |= {writer, there[1]}
        requests, answers, held = Requests(), Answers(), asyncio.Event()

        async def ask() -> None:
            while data := await reader.read(65536):
                if self.statement in requests.feed(data) and not self.late:
                    self.late += 1
                    held.set()
                await self._carry(there[1], data)

        async def answer() -> None:
            while data := await there[0].read(65536):
                if held.is_set() and answers.feed(data):
                    await asyncio.sleep(self.seconds)
                    await self._carry(writer, data)
                    self._gone = True
                    held.clear()
                else:
                    answers.feed(data)
                    await self._carry(writer, data)

        await self._both(ask(), answer(), (reader, writer), there)

    async def _carry(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if not self._gone:
            writer.write(data)
            await writer.drain()

    async def _both(self, ask: object, answer: object, here: Streams, there: Streams) -> None:
        pumps = [asyncio.ensure_future(each) for each in (ask, answer)]  # type: ignore[arg-type]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for _, writer in (here, there):
                writer.transport.abort()
                self._writers.discard(writer)


class Late(msgspec.Struct, frozen=True):
    """What became of the handlers of one worker."""

    what: str
    answers: int
    """How many were held back."""
    held: int
    """Handlers that ran then."""
    left: Sequence[float]
    """Seconds that the lease of each still had when its handler stopped."""


async def _one(dsn: str, db: Connection, client: Client, what: str, number: int) -> Late:
    """A worker of its own, on a lane of its own, whose one answer is late."""
    lane = f"{what}-{number}"
    handles = await client.submit_many([hold.call() for _ in range(SLOTS)], lane=lane)
    ids = [handle.execution_id for handle in handles]
    async with LateLine.to(dsn) as line:
        line.statement, line.seconds = STATEMENTS[what], LATE * TTL
        worker = app.worker(
            dsn=line.dsn,
            lanes=[lane],
            lease_ttl=TTL,
            concurrency=SLOTS,
            drain=0,
            reconcile=False,
        )
        async with worker:
            with contextlib.suppress(AssertionError):
                await eventually(lambda: stopped.keys() >= set(map(str, ids)), within=4 * TTL)
            held = await db.fetchval(HELD, lane)
            left = [
                float(await db.fetchval(LEFT, each.uuid, stopped.get(str(each), time.time())) or 0)
                for each in ids
            ]
            line.mend()
    return Late(what, line.late, held, left)


async def _run(dsn: str, rounds: int) -> list[Figure]:
    db = await connect(DatabaseConfig(dsn=dsn), role="tests")
    try:
        async with await Client.connect(dsn) as client:
            lates: list[Late] = []
            for number in range(rounds):
                tried = [_one(dsn, db, client, what, number) for what in STATEMENTS]
                lates += await asyncio.gather(*tried)
    finally:
        await db.close()
    return [_figure([late for late in lates if late.what == what], what) for what in STATEMENTS]


def _figure(lates: Sequence[Late], what: str) -> Figure:
    left = [seconds for late in lates for seconds in late.left]
    answers = sum(late.answers for late in lates)
    held = sum(late.held for late in lates)
    return Figure(
        "G3",
        f"{len(left)} handlers whose {what} was answered {LATE * TTL:.1f} s late (TTL {TTL:g} s)"
        " and nothing after it: the least that a lease had left when its handler stopped",
        f"{min(left):.2f} s ({answers} late answers, {held} held)",
        "> 0 s",
        held=min(left) > 0 and answers == len(lates) and held == len(left),
    )


def _prove(arena: Arena, rounds: int) -> list[Figure]:
    worker = logging.getLogger("flowfabric.worker")
    worker.disabled = True  # it tells of every lease that it lost
    try:
        with arena.database() as dsn:
            return asyncio.run(_run(dsn, rounds))
    finally:
        worker.disabled = False


RENEWAL: Final = Proof(
    "renewal",
    quick=lambda arena: _prove(arena, 1),
    full=lambda arena: _prove(arena, 10),
    claims=("G3",),
    timed=True,
)
