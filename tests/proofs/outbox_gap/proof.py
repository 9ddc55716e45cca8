"""G11: a subscriber sees every committed event once, in order within each execution, none lost.

Writers take the ids of their events and commit them late, out of order, or not at all. Meanwhile
the readers lose their connections and their processes and go on from their cursors.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Final

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.outbox_gap.readers import (
    CompletionReader,
    Joiner,
    KilledReader,
    LeaseReader,
    NaiveReader,
    Reader,
)
from tests.proofs.outbox_gap.subscriber import Seen
from tests.proofs.outbox_gap.writers import Lateness, Writer
from tests.proofs.proof import Proof
from tests.worker.facts import eventually

CUT: Final = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
 WHERE application_name IN ('flowfabric reader', 'flowfabric listener')
   AND datname = current_database()
"""
LEASES: Final = "SELECT event_id FROM ff.lease_event ORDER BY event_id"
COMPLETIONS: Final = "SELECT event_id FROM ff.completion_event ORDER BY event_id"
PASSED: Final = "SELECT EXISTS (SELECT FROM ff.lease_event WHERE event_id > $1)"
WITHIN: Final = 60.0


class Size(msgspec.Struct, frozen=True):
    """How much is written, how late, and how often readers are disturbed."""

    writers: int
    batch: int
    events: int
    """Lease events at least; writers go on until every reader was disturbed often enough."""
    late: Lateness
    cuts: int
    kills: int
    joins: int


QUICK: Final = Size(6, 8, 2_000, Lateness(0.02, 0.3, few=0.02), cuts=4, kills=2, joins=4)
FULL: Final = Size(16, 25, 100_000, Lateness(0.2, 2.0, few=0.002), cuts=50, kills=20, joins=20)


class Faults(msgspec.Struct, frozen=True):
    """What is wrong with what a reader saw."""

    missing: int
    twice: int
    disorder: int
    """Events that come after a later one of the same execution."""
    made_up: int
    """Events that were never committed."""

    @classmethod
    def of(cls, seen: Sequence[Seen], committed: Sequence[int]) -> Faults:
        ids = [each.event_id for each in seen]
        return cls(
            missing=len(set(committed) - set(ids)),
            twice=len(ids) - len(set(ids)),
            disorder=_disorder(seen),
            made_up=len(set(ids) - set(committed)),
        )

    @property
    def none(self) -> bool:
        return not (self.missing or self.twice or self.disorder or self.made_up)

    def __str__(self) -> str:
        return f"{self.missing}, {self.twice}, {self.disorder}, {self.made_up}"


def _disorder(seen: Iterable[Seen]) -> int:
    """By the epochs of its leases, not by the ids: a lease is acquired, then it ends."""
    stories: defaultdict[str, list[tuple[int, bool]]] = defaultdict(list)
    for each in seen:
        stories[each.execution].append((each.lease_epoch, each.word != "acquired"))
    return sum(
        later < earlier
        for story in stories.values()
        for earlier, later in itertools.pairwise(story)
    )


async def _run(dsn: str, arena: Arena, size: Size) -> list[Figure]:
    async with contextlib.AsyncExitStack() as stack:

        async def line(role: str) -> Connection:
            conn = await connect(DatabaseConfig(dsn=dsn), role=role)
            stack.push_async_callback(conn.close)
            return conn

        async def engine(role: str) -> Engine:
            opened = await Engine.connect(DatabaseConfig(dsn=dsn), role=role)
            stack.push_async_callback(opened.close)
            return opened

        db = await line("tests")

        async def writer(number: int) -> Writer:
            chance, conn = arena.chance(f"writer {number}"), await line("writer")
            return Writer(number, conn, chance, batch=size.batch, late=size.late)

        writers = [await writer(number) for number in range(size.writers)]
        late = await writer(size.writers)
        for each in (*writers, late):
            await each.create(2 * size.batch)
        reading = await engine("reader")
        leases, ends = LeaseReader(reading), CompletionReader(reading)
        killed, naive = KilledReader(dsn), NaiveReader(await line("naive"))
        joiner = Joiner(await engine("joiner"), await line("tests"))
        chance = arena.chance("disturbances")
        async with _following([leases, ends, killed, naive]) as followed:
            disturbances = asyncio.gather(
                _cut(await line("tests"), leases, ends, size),
                _kill(killed, chance, size),
                _join(joiner, late, leases, await line("tests"), size),
            )

            def enough() -> bool:
                written = sum(each.events for each in writers)
                return disturbances.done() and written >= size.events

            await asyncio.gather(*[each.write(enough) for each in writers])
            await disturbances
            committed = [row["event_id"] for row in await db.fetch(LEASES)]
            completed = [row["event_id"] for row in await db.fetch(COMPLETIONS)]
            for reader in (leases, killed, naive):
                await _come_to(reader, committed[-1], followed)
            await _come_to(ends, completed[-1], followed)
        return [
            *[_figure(each, committed, size) for each in (leases, killed)],
            _figure(ends, completed, size),
            await _joined(joiner, size),
            _disturbed(committed, leases, killed, size),
            _control(naive, committed),
        ]


@contextlib.asynccontextmanager
async def _following(readers: Sequence[Reader]) -> AsyncGenerator[dict[Reader, asyncio.Task[None]]]:
    tasks = {each: asyncio.create_task(each.follow()) for each in readers}
    try:
        yield tasks
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def _come_to(
    reader: Reader, event_id: int, followed: dict[Reader, asyncio.Task[None]]
) -> None:
    """Wait until the reader has come so far; whatever it does not see in time is missing."""
    with contextlib.suppress(AssertionError):
        await eventually(
            lambda: followed[reader].done() or reader.has_seen(event_id), within=WITHIN
        )
    if followed[reader].done():
        await followed[reader]


async def _cut(db: Connection, leases: Reader, ends: Reader, size: Size) -> None:
    """Cut the connections of the readers again and again, while they have something to read.

    A connection that was idle is replaced without a word, so it takes some cuts to disconnect.
    """
    for number in itertools.count():
        if number >= size.cuts and leases.interruptions:
            break
        for reader, more in ((leases, size.events // (size.cuts + 2)), (ends, 1)):
            due = len(reader.seen) + more
            await eventually(lambda reader=reader, due=due: len(reader.seen) >= due, within=WITHIN)
        async with asyncio.timeout(WITHIN):
            while not await db.fetchval(CUT):
                pass


async def _join(joiner: Joiner, late: Writer, leases: Reader, db: Connection, size: Size) -> None:
    """Subscribe again and again, while a transaction is open whose ids others have passed."""
    for number in range(1, size.joins + 1):
        due = number * size.events // (2 * size.joins)
        await eventually(lambda due=due: len(leases.seen) >= due, within=WITHIN)
        async with late.unended() as last:
            await eventually(lambda last=last: db.fetchval(PASSED, last), within=WITHIN)
            joining = asyncio.create_task(joiner.join())
            await asyncio.wait([joining], timeout=size.late.greatest / 2)
        await joining


async def _kill(reader: KilledReader, chance: random.Random, size: Size) -> None:
    """Kill the process of the reader again and again, each time after it has read some more."""
    for number in range(1, size.kills + 1):
        due = len(reader.seen) + chance.randint(1, size.events // (size.kills + 2))
        await eventually(lambda due=due: len(reader.seen) >= due and reader.unsaved, within=WITHIN)
        reader.kill()
        await eventually(lambda number=number: reader.interruptions >= number, within=WITHIN)


def _figure(reader: Reader, committed: Sequence[int], size: Size) -> Figure:
    faults = Faults.of(reader.seen, committed)
    return Figure(
        "G11",
        f"{len(committed):,} events of {size.writers} writers that commit up to"
        f" {size.late.greatest:g} s late, a reader {reader.name}:"
        " missing, seen twice, out of order, never committed",
        str(faults),
        "0, 0, 0, 0",
        held=faults.none and len(committed) > 0,
    )


async def _joined(joiner: Joiner, size: Size) -> Figure:
    missed = await joiner.missed()
    return Figure(
        "G11",
        f"{joiner.joins} subscriptions from now on: events that are committed later and not theirs",
        str(missed),
        "0",
        held=missed == 0 and joiner.joins == size.joins,
    )


def _disturbed(
    committed: Sequence[int], leases: Reader, killed: KilledReader, size: Size
) -> Figure:
    undone = committed[-1] - committed[0] + 1 - len(committed)
    reached = (undone, leases.interruptions, killed.interruptions, killed.again)
    return Figure(
        "",
        "ids rolled back; disconnects; processes killed; events seen after their last checkpoint",
        "; ".join(f"{each:,}" for each in reached),
        f"> 0; > 0; {size.kills}; > 0",
        held=all(reached) and killed.interruptions == size.kills,
    )


def _control(naive: Reader, committed: Sequence[int]) -> Figure:
    lost = Faults.of(naive.seen, committed).missing
    return Figure("", f"lost by a reader {naive.name}", f"{lost:,}", "> 0", held=lost > 0)


def _prove(arena: Arena, size: Size) -> list[Figure]:
    with arena.database() as dsn:
        return asyncio.run(_run(dsn, arena, size))


OUTBOX_GAP: Final = Proof(
    "outbox_gap",
    quick=lambda arena: _prove(arena, QUICK),
    full=lambda arena: _prove(arena, FULL),
    claims=("G11",),
)
