"""G8: each end reaches each downstream once, wherever the dispatcher is killed on the way."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Final

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from tests.engine.flows.cascades import Crash, Run, crashing_cascade
from tests.engine.flows.graphs import Graph
from tests.engine.flows.model import Dag
from tests.engine.joins.invariants import broken_invariants
from tests.proofs.arena import Arena
from tests.proofs.dispatcher import Dispatchers, Order
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.worker.facts import eventually

NODES: Final = 200
SEEDS: Final = 500
PROCESSES: Final = 2
STUCK_AFTER: Final = 60.0
LATEST: Final = 0.002
"""Seconds within which one that dies during a statement is killed; most take less."""
MOST_STATEMENTS: Final = 9
MOMENTS: Final = ("before", "during")

SERVED: Final = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $1"

EMPTY: Final = """
DO $$
BEGIN
    EXECUTE (SELECT 'TRUNCATE ' || string_agg(format('ff.%I', tablename), ', ') FROM pg_tables
              WHERE schemaname = 'ff' AND tablename NOT LIKE '%annotation');
END
$$
"""


class Case(msgspec.Struct, frozen=True):
    """One graph to run."""

    name: str
    nodes: int
    in_turns: bool


class Seen(msgspec.Struct):
    """What became of some cases."""

    cases: int = 0
    crashes: int = 0
    died_at: set[str] = msgspec.field(default_factory=set[str])
    ran: set[str] = msgspec.field(default_factory=set[str])
    faults: list[str] = msgspec.field(default_factory=list[str])

    def add(self, other: Seen) -> None:
        self.cases += other.cases
        self.crashes += other.crashes
        self.died_at |= other.died_at
        self.ran |= other.ran
        self.faults += other.faults


class Killing(Run):
    """A graph whose dispatcher is a process that is killed."""

    waiting_share = 0.3

    def __init__(
        self,
        dispatchers: Dispatchers,
        dsn: str,
        db: Connection,
        flow: Graph,
        dag: Dag,
        chance: random.Random,
    ) -> None:
        super().__init__(db, flow, dag, chance)
        self._dispatchers, self._dsn = dispatchers, dsn

    async def mortal(self, name: str, limit: int) -> int:
        """A step by a process that may be killed; raises `Crash` when it was.

        The next one comes once the server has let go of what the dead one held: one that passes
        over rows in use would find nothing to do.
        """
        during = self.chance.random() < 0.5
        report = await self._dispatchers.run(
            Order(
                dsn=self._dsn,
                step=name,
                limit=limit,
                die_at=self.chance.choice((0, self.chance.randint(1, MOST_STATEMENTS))),
                after=self.chance.uniform(0, LATEST) if during else None,
            )
        )
        self.ran.update(report.ran)
        if report.error:
            raise RuntimeError(f"a dispatcher ended by itself: {report.error}")
        if not report.killed:
            return report.answer
        self.crashes.append(f"{MOMENTS[during]} {report.ran[-1]}")
        await eventually(lambda: self.db.fetchval(SERVED, report.backend), within=STUCK_AFTER)
        raise Crash


def quick(arena: Arena) -> Sequence[Figure]:
    seen = Seen()
    with arena.database() as dsn:
        seen.add(_ran(dsn, list(_cases(arena, 10, nodes=40))))
    return _figures(seen, "10 graphs of 40", everywhere=False)


def full(arena: Arena) -> Sequence[Figure]:
    cases = list(_cases(arena, SEEDS, nodes=NODES))
    seen = Seen()
    with (
        ExitStack() as stack,
        ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        homes = [stack.enter_context(arena.database()) for _ in range(PROCESSES)]
        shares = [cases[number::PROCESSES] for number in range(PROCESSES)]
        for share in pool.map(_ran, homes, shares):
            seen.add(share)
    return _figures(seen, f"{SEEDS} graphs of {NODES}", everywhere=True)


def _cases(arena: Arena, count: int, *, nodes: int) -> Iterable[Case]:
    for number in range(count):
        yield Case(f"cascade_crash {arena.seed} {number}", nodes, in_turns=number % 2 == 1)


def _ran(dsn: str, cases: Iterable[Case]) -> Seen:
    return asyncio.run(_run(dsn, cases))


async def _run(dsn: str, cases: Iterable[Case]) -> Seen:
    seen = Seen()
    config = DatabaseConfig(dsn=dsn)
    db = await connect(config, role="tests")
    engine = await Engine.connect(config, role="tests")
    dispatchers = await Dispatchers.start()
    try:
        for case in cases:
            seen.add(await _one(db, engine, dispatchers, case))
            await db.execute(EMPTY)
    finally:
        await dispatchers.close()
        await engine.close()
        await db.close()
    return seen


async def _one(db: Connection, engine: Engine, dispatchers: Dispatchers, case: Case) -> Seen:
    chance = random.Random(case.name)
    dsn = engine.pool.config.dsn
    try:
        async with asyncio.timeout(STUCK_AFTER):
            run, faults = await crashing_cascade(
                db,
                engine,
                chance,
                nodes=case.nodes,
                in_turns=case.in_turns,
                run_of=partial(Killing, dispatchers, dsn),
            )
    except Exception as error:
        return Seen(cases=1, faults=[f"{case.name}: {error!r}"])
    faults += [f"{claim}: {rows[0]}" for claim, rows in (await broken_invariants(db)).items()]
    return Seen(
        cases=1,
        crashes=len(run.crashes),
        died_at=set(run.crashes),
        ran=run.ran,
        faults=[f"{case.name}: {each}" for each in faults],
    )


def _figures(seen: Seen, size: str, *, everywhere: bool) -> list[Figure]:
    places = {f"{when} {name}" for name in seen.ran for when in MOMENTS}
    return [
        Figure(
            promise="G8",
            what=f"{size}, dispatcher processes killed {seen.crashes:,} times:"
            " stuck, double or wrong",
            reached="; ".join([str(len(seen.faults)), *seen.faults[:3]]),
            target="0",
            held=not seen.faults and seen.crashes >= seen.cases,
        ),
        Figure(
            promise="G8",
            what="moments before and during a statement, or the commit, at which one was killed",
            reached=f"{len(seen.died_at)} of {len(places)}",
            target="all" if everywhere else "half",
            held=len(seen.died_at) >= len(places) / (1 if everywhere else 2),
        ),
    ]


CASCADE_CRASH: Final = Proof("cascade_crash", quick=quick, full=full, claims=("G8",))
