"""Where operations meet: a connection for each, one step at a time in an order that is given."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import asyncpg
import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import Pool, connect
from flowfabric.db.rows import Connection
from flowfabric.db.steps import COMMIT
from flowfabric.engine.engine import Engine
from flowfabric.testing import Clock
from tests.proofs.interleave.actor import Actor, told
from tests.proofs.interleave.operations import Operation, moved
from tests.proofs.interleave.saved import State, restore, state, tidy, without_marks_of_a_cancel
from tests.proofs.interleave.scene import Scene
from tests.proofs.queue import broken_queue

T = TypeVar("T")
Outcome: TypeAlias = tuple[tuple[str, ...], State]
"""The answers and everything that stands, as text that can be compared."""

LOOK_AFTER = 0.0015
"""Most statements have answered by then; of one that has not it is asked what it waits for."""

TIDY_EVERY = 150

WAITS = """
SELECT waiting.pid FROM unnest($1::integer[]) AS waiting (pid)
 WHERE pg_blocking_pids(waiting.pid) && $2::integer[]
"""

SUCCESSES = """
SELECT count(*) FROM ff.completion_event
 WHERE outcome = 'success' AND execution_id = ANY ($1::uuid[])
"""


LOCKED_IN = ("exec_core", "lease")
"""Tables whose rows batches lock, each by id."""
FREE = "SELECT execution_id FROM ff.{} FOR NO KEY UPDATE SKIP LOCKED"
ALL = "SELECT execution_id FROM ff.{} ORDER BY partition_key, execution_id"


class Play(msgspec.Struct, frozen=True):
    """What came of one order of the steps."""

    answers: tuple[Any, ...]
    state: State
    trace: tuple[int, ...]
    """Whose step it was, each time."""
    options: tuple[tuple[int, ...], ...]
    """Whose it could have been."""
    told: tuple[str, ...]
    """The answers as text that can be compared."""
    script: str
    """The steps by name."""
    deadlocks: int
    acked: int
    """Cancels that were acknowledged."""
    successes_after: int
    """Successes recorded after such an acknowledgement."""
    broken: tuple[str, ...] = ()
    """What is not true of the queue, the leases and the limits."""

    @property
    def outcome(self) -> Outcome:
        return self.told, self.state

    @property
    def switches(self) -> int:
        """How often another one went on."""
        return sum(one != next_one for one, next_one in pairwise(self.trace))


class Stage:
    """Engines of one connection each on one database, and a connection that looks on."""

    def __init__(self, db: Connection, engines: Sequence[Engine]) -> None:
        self.db, self.engines = db, engines
        self.clock = Clock(db)
        self.plays = 0
        self.locks: dict[tuple[str, str, str], tuple[UUID, ...]] = {}
        """What an operation that was played alone had locked before it committed, by table."""

    @classmethod
    async def open(cls, dsn: str, actors: int) -> Stage:
        db = await connect(DatabaseConfig(dsn=dsn), role="looks on")
        await Clock.install(db)
        config = DatabaseConfig(dsn=dsn, pool_size=1)
        engines = [Engine(await Pool.open(config, role=f"actor {n}")) for n in range(actors)]
        for engine in engines:
            async with engine.pool.connection() as conn:
                with contextlib.suppress(asyncpg.InsufficientPrivilegeError):
                    await conn.execute("SET deadlock_timeout = '50ms'")
        await engines[0].seed_waitpoint_hmac_secret("k1", "ab" * 32)
        return cls(db, engines)

    async def close(self) -> None:
        for engine in self.engines:
            await engine.close()
        await self.db.close()

    async def play(
        self,
        scene: Scene,
        operations: Sequence[Operation],
        schedule: Sequence[int] = (),
        *,
        order: Sequence[int] | None = None,
    ) -> Play:
        """Put the situation back and run the operations together.

        Their steps come as the schedule says; where it says nothing (any more), the last one
        goes on, and then the others in `order`; one that polls lets the others go first. Without a
        schedule they come one after the other.
        """
        self.plays += 1
        if self.plays % TIDY_EVERY == 0:
            await tidy(self.db)
        await restore(self.db, scene.name)
        actors = [
            Actor(lambda n=n, operation=operation: operation.call(self.engines[n], scene, n))
            for n, operation in enumerate(operations)
        ]
        try:
            return await self._direct(scene, operations, actors, list(schedule), order)
        finally:
            for actor in actors:
                await actor.close()

    async def _direct(
        self,
        scene: Scene,
        operations: Sequence[Operation],
        actors: Sequence[Actor],
        schedule: list[int],
        order: Sequence[int] | None,
    ) -> Play:
        ranks = list(range(len(actors))) if order is None else list(order)
        trace: list[int] = []
        options: list[tuple[int, ...]] = []
        script: list[str] = []
        acks: dict[int, int] = {}
        deadlocks = await self.settle(actors)
        while ready := tuple(n for n, actor in enumerate(actors) if actor.ready):
            wanted = schedule[len(trace) : len(trace) + 1]
            wanted += sorted(trace[-1:] + ranks, key=lambda n: actors[n].polls)
            chosen = next(n for n in wanted if n in ready)
            trace.append(chosen)
            options.append(ready)
            script.append(f"{chosen}: {actors[chosen].steps[-1]}")
            if len(operations) == 1 and actors[0].steps[-1] == COMMIT:
                await self._note_locks(scene, operations[0])
            actors[chosen].go()
            deadlocks += await self.settle(actors)
            for n, actor in enumerate(actors):
                if actor.done and n not in acks and operations[n].acked(actor.answer):
                    acks[n] = await self._successes(scene, operations[n].ends)
        found = await state(self.db, scene.known)
        return Play(
            answers=tuple(actor.answer for actor in actors),
            state=found,
            trace=tuple(trace),
            options=tuple(options),
            told=tuple(scene.known.text(told(actor.answer)) for actor in actors),
            script=", ".join(script),
            deadlocks=deadlocks,
            acked=len(acks),
            successes_after=sum(
                [
                    await self._successes(scene, operations[n].ends) - before
                    for n, before in acks.items()
                ]
            ),
            broken=await broken_queue(self.db),
        )

    async def settle(self, actors: Sequence[Actor]) -> int:
        """Wait until each is held, done, or waits for a lock of another; how many deadlocks."""
        deadlocks = 0
        while under_way := [actor for actor in actors if actor.under_way]:
            waits = [asyncio.ensure_future(actor.settled.wait()) for actor in under_way]
            await asyncio.wait(waits, timeout=LOOK_AFTER)
            for wait in waits:
                wait.cancel()
            under_way = [actor for actor in actors if actor.under_way]
            if not under_way:
                break
            pids = [actor.pid for actor in actors]
            blocked = {
                row["pid"]
                for row in await self.db.fetch(WAITS, [actor.pid for actor in under_way], pids)
            }
            if any(actor.under_way and actor.pid not in blocked for actor in under_way):
                continue
            if any(actor.ready for actor in actors):
                break
            if all(actor.under_way for actor in under_way):
                deadlocks += 1
                await self._broken(under_way)
        return deadlocks

    async def _note_locks(self, scene: Scene, operation: Operation) -> None:
        for table in LOCKED_IN:
            free = {row["execution_id"] for row in await self.db.fetch(FREE.format(table))}
            rows = [row["execution_id"] for row in await self.db.fetch(ALL.format(table))]
            locked = tuple(each for each in rows if each not in free)
            key = (scene.name, operation.name, table)
            self.locks[key] = max(locked, self.locks.get(key, ()), key=len)

    async def _broken(self, actors: Sequence[Actor]) -> None:
        """Wait until the server has chosen a victim."""
        waits = [asyncio.ensure_future(actor.settled.wait()) for actor in actors]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=10)
        for wait in waits:
            wait.cancel()

    async def _successes(self, scene: Scene, ends: Sequence[str]) -> int:
        members = [scene.ids[name].uuid for name in ends if name in scene.ids]
        return await self.db.fetchval(SUCCESSES, members)

    async def swept(
        self,
        scene: Scene,
        operations: Sequence[Operation],
        play: Play,
        order: Sequence[int] | None = None,
    ) -> Outcome:
        """What it comes to once those that pass over rows in use have had their next turns.

        Of a sweep it only counts then how much was moved, not in which turn.
        """
        answers = list(play.told)
        totals: Counter[str] = Counter()
        for n in range(len(operations)) if order is None else order:
            operation = operations[n]
            if operation.in_the_end is not None:
                answers[n] = scene.known.text(operation.in_the_end(play.answers[n]))
            if not operation.passed_over(play.answers[n]):
                continue
            if operation.next_turn is not None:
                while moved(await operation.next_turn(self.engines[n], scene, n)):
                    pass
                continue
            answer = await operation.call(self.engines[n], scene, n)
            if isinstance(answer, list):
                answers[n] = scene.known.text(told(answer))
                continue
            answers[n] = operation.name
            total = moved(play.answers[n])
            while more := moved(answer):
                total += more
                answer = await operation.call(self.engines[n], scene, n)
            counts_as = operation.counts_as or operation.name
            if operation.counts_rows:
                totals[counts_as] += total
            else:
                totals[counts_as] |= total > 0
        answers += [f"{name} moved {total}" for name, total in sorted(totals.items())]
        return tuple(answers), without_marks_of_a_cancel(await state(self.db, scene.known))
