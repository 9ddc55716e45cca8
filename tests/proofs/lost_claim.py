"""Postgres is killed after a claim is answered and before its WAL is flushed.

A claim does not wait for its flush, so such a claim never happened. Its executions are claimable,
its leases are refused, and a subscriber to lease events, connected before, misses and repeats none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from uuid import UUID

import asyncpg
import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.migrate import migrate
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.events.cursor import encode_cursor
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import (
    ExecutionNotActive,
    FlowFabricError,
    StaleLease,
    StreamDisconnected,
)
from tests import given
from tests.engine.lifecycle.fenced import OPERATIONS
from tests.proofs.arena import Arena
from tests.proofs.chaos.server import Server
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.proofs.zombie import Tally
from tests.worker.facts import eventually

CLAIMED: Final = 40
"""Executions of one claim: more than the 32 ids that a sequence writes to the WAL in advance, so
that a crash gives some of them out again."""
MOST: Final = 10 * CLAIMED
TTL: Final = 600.0

# The WAL writer would flush a claim after 200 ms. Autovacuum commits, which flushes too.
UNFLUSHED: Final = ("wal_writer_delay = '10s'", "autovacuum = off")

LEASED: Final = "SELECT count(*) FROM ff.lease WHERE lease_id = $1"
RECORDED: Final = "SELECT event_id, lease_id, event_type FROM ff.lease_event ORDER BY event_id"
ENDED_ONCE: Final = """
SELECT count(*) FROM (
    SELECT FROM ff.exec_core e JOIN ff.completion_event c USING (partition_key, execution_id)
     WHERE e.terminal_outcome = 'success' GROUP BY execution_id HAVING count(*) = 1) AS once
"""


class Size(msgspec.Struct, frozen=True):
    """How often Postgres is killed before a subscriber can have read of a claim, and after."""

    kills: int


class Told(msgspec.Struct, frozen=True):
    """What a subscriber was told of a lease."""

    event_id: int
    lease_id: UUID
    event_type: str


class Follower:
    """A subscriber to lease events that goes on from its cursor after each crash."""

    def __init__(self, engine: Engine) -> None:
        self.told: list[Told] = []
        self.when_told: Callable[[Told], None] = lambda event: None
        self._engine = engine
        self._cursor = encode_cursor(0)

    def waits_for_a_writer(self) -> bool:
        """An id is missing below one that was read."""
        return self._engine.events.leases.gap_age > 0

    async def follow(self) -> None:
        while True:
            try:
                async with await self._engine.subscribe_lease_history(self._cursor) as history:
                    async for event in history:
                        self._cursor = event.cursor
                        self.told.append(Told(event.event_id, event.lease_id, event.kind.value))
                        self.when_told(self.told[-1])
            except StreamDisconnected as error:
                self._cursor = error.cursor
            except FlowFabricError:  # the server is down
                await asyncio.sleep(0.05)


class Story:
    """Claims and crashes, and what became of them."""

    def __init__(self, server: Server, follower: Follower) -> None:
        self.server, self.follower = server, follower
        self.refusals = Tally()
        self.created = self.lost = 0

    async def claimed(self, db: Connection, instance: str, limit: int = CLAIMED) -> list[Lease]:
        claimant = Claimant(worker_id="w", worker_instance_id=instance, lanes=("default",))
        return [task.lease for task in await claim(db, claimant, ttl=TTL, limit=limit)]

    async def claimed_out_of_order(self, db: Connection) -> list[Lease]:
        """Two claims, of which the one with the lower event ids commits last."""
        other = await connect(DatabaseConfig(dsn=self.server.dsn), role="tests")
        try:
            async with other.transaction():
                late = await self.claimed(other, "late", CLAIMED // 2)
                early = await self.claimed(db, "early")

                async def is_read() -> bool:
                    newest = self.follower.told[-1:]
                    return self.follower.waits_for_a_writer() or any(
                        event.lease_id == early[0].lease_id for event in newest
                    )

                await _bounded(is_read, within=5)
        finally:
            await other.close()
        return late + early

    async def crash(self, *, when_told: bool) -> None:
        """A claim, a crash, and everything ends."""
        config = DatabaseConfig(dsn=self.server.dsn)
        db = await connect(config, role="tests")
        await create_execution(db, [given.new() for _ in range(CLAIMED)])
        self.created += CLAIMED
        if when_told:
            old = await self._claim_until_told(db)
        else:
            old = await self.claimed(db, "lost")
            self.server.kill()  # at once: nothing else of this process runs in between
        db.terminate()
        await self.server.start()
        db = await connect(config, role="tests")
        try:
            await self._go_on(db, old)
        finally:
            await db.close()

    async def _claim_until_told(self, db: Connection) -> list[Lease]:
        """Postgres is killed at the moment at which the subscriber has an event of the claim."""
        killed = asyncio.Event()

        def kill(event: Told) -> None:
            if event.event_type == "acquired" and not killed.is_set():
                self.server.kill()
                killed.set()

        await self._until_told_of_all(db)
        self.follower.when_told = kill
        try:
            leases = await self.claimed(db, "told")
            async with asyncio.timeout(30):
                await killed.wait()
        finally:
            self.follower.when_told = lambda event: None
        return leases

    async def _go_on(self, db: Connection, old: Sequence[Lease]) -> None:
        current = old
        if not await db.fetchval(LEASED, old[0].lease_id):
            self.lost += len(old)
            await self._refused(db, old, ExecutionNotActive)
            current = await self.claimed_out_of_order(db)
            await self._refused(db, old, StaleLease)
            if self.refusals.unexpected:  # then there is nothing left to complete
                return
        ended = await complete(db, [Completion(lease) for lease in current])
        assert [type(each) for each in ended] == [Completed] * CLAIMED
        await self._refused(db, [] if current is old else old, ExecutionNotActive)
        await self._until_told_of_all(db)

    async def _refused(
        self, db: Connection, leases: Sequence[Lease], error: type[FlowFabricError]
    ) -> None:
        for name, call in OPERATIONS.items():
            self.refusals.judge(name, await call(db, leases) if leases else [], error)

    async def _until_told_of_all(self, db: Connection) -> None:
        async def all_told() -> bool:
            newest = await db.fetchval("SELECT coalesce(max(event_id), 0) FROM ff.lease_event")
            return not newest or any(event.event_id == newest for event in self.follower.told)

        await _bounded(all_told, within=20)


async def _bounded(fact: Callable[[], Awaitable[bool]], *, within: float) -> None:
    """Wait for it, but not for ever: what was passed over never comes, and counts at the end."""
    with contextlib.suppress(AssertionError):
        await eventually(fact, within=within)


async def _run(server: Server, size: Size) -> list[Figure]:
    await server.start()
    await migrate(server.dsn)
    db = await asyncpg.connect(server.dsn)
    for setting in UNFLUSHED:
        await db.execute(f"ALTER SYSTEM SET {setting}")
    await db.close()
    await server.restart(0)
    async with contextlib.AsyncExitStack() as stack:
        engine = await Engine.connect(DatabaseConfig(dsn=server.dsn), role="follower")
        stack.push_async_callback(engine.close)
        follower = Follower(engine)
        following = asyncio.create_task(follower.follow())
        stack.callback(following.cancel)
        story = Story(server, follower)
        for _ in range(size.kills):
            await story.crash(when_told=True)
            await story.crash(when_told=False)
        while not story.lost and story.created < MOST:  # somebody else flushed it just in time
            await story.crash(when_told=False)
        db = await asyncpg.connect(server.dsn)
        stack.push_async_callback(db.close)
        recorded = [Told(*row) for row in await db.fetch(RECORDED)]
        once = await db.fetchval(ENDED_ONCE)
        return _figures(story, recorded, once, size)


def _figures(story: Story, recorded: Sequence[Told], once: int, size: Size) -> list[Figure]:
    told, refusals = story.follower.told, story.refusals
    unreal, missing = set(told) - set(recorded), set(recorded) - set(told)
    in_order = [event.event_id for event in told] == sorted({event.event_id for event in told})
    wrong = "".join(f", {number} x {how}" for how, number in refusals.unexpected.most_common(3))
    return [
        Figure(
            "G3",
            f"leases of claims that a crash lost ({size.kills} kills of Postgres at the answer): "
            "calls refused, before, while and after another worker has the executions",
            f"{story.lost:,} leases, {refusals.refused:,} of {refusals.calls:,} calls{wrong}",
            "some, all",
            held=bool(story.lost) and refusals.refused == refusals.calls,
        ),
        Figure(
            "G2",
            "executions that completed exactly once after that",
            f"{once:,} of {story.created:,}",
            "all",
            held=once == story.created,
        ),
        Figure(
            "G11",
            f"lease events told before a crash and lost by it ({size.kills} kills at the event)",
            f"{len(unreal):,} of {len(told):,}",
            "0",
            held=not unreal,
        ),
        Figure(
            "G11",
            "lease events that the subscriber, connected before the crashes, was never told, also "
            "of claims that commit out of order; told twice or out of order",
            f"{len(missing):,} of {len(recorded):,}; {'none' if in_order else 'some'}",
            "0; none",
            held=not missing and in_order,
        ),
    ]


def _at(size: Size) -> Callable[[Arena], Sequence[Figure]]:
    def run(arena: Arena) -> Sequence[Figure]:
        with Server.running() as server:
            return asyncio.run(_run(server, size))

    return run


LOST_CLAIM: Final = Proof(
    "lost_claim",
    quick=_at(Size(kills=1)),
    full=_at(Size(kills=10)),
    claims=("G2", "G3", "G11"),
)
