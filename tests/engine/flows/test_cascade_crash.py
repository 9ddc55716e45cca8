"""A dispatcher that dies at any statement, any number of times, changes nothing of the outcome.

A hundred random graphs, every tenth of 200 members and the others of 20 to 40. Half of them run
without any order between workers and dispatchers, where the outcome does not depend on it: nobody
is cancelled for others. The other half, with races that cancel their losers, goes in turns.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.facade import Engine
from flowfabric.engine.flows.dispatch_completions import Dispatched, dispatch_batch
from flowfabric.engine.flows.queue_siblings import cancel_siblings
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.ids import ExecutionId
from flowfabric.joins import AllOf, AnyOf, JoinPolicy, Quorum
from tests import given
from tests.engine.flows.graphs import LETTERS, Graph, end_all, end_leases, submitted
from tests.engine.flows.model import Dag, final_letters, letters_in_turns

T = TypeVar("T")
SEEDS = range(100)
STATES = {"S": "ok", "F": "f", "C": "c", "K": "k"}


UNFINISHED = """
SELECT (SELECT count(*) FROM ff.exec_core WHERE lifecycle_phase <> 'terminal')
     + (SELECT count(*) FROM ff.completion_event WHERE dispatched_at_ms IS NULL)
     + (SELECT count(*) FROM ff.pending_cancel_groups)
"""


class Crash(Exception):
    """The process died."""


class Mortal:
    """A connection whose process dies at its n-th statement, before or after it is run."""

    def __init__(self, conn: Connection, chance: random.Random) -> None:
        self._conn = conn
        self._left = chance.randint(1, 14)
        self._before = chance.random() < 0.5

    async def fetch(self, *args: Any) -> Any:
        return await self._run(self._conn.fetch, *args)

    async def execute(self, *args: Any) -> Any:
        return await self._run(self._conn.execute, *args)

    async def _run(self, statement: Callable[..., Awaitable[T]], *args: Any) -> T:
        self._left -= 1
        if self._left == 0 and self._before:
            raise Crash
        answer = await statement(*args)
        if self._left == 0:
            raise Crash
        return answer


def grown(chance: random.Random, nodes: int, *, cancelling: bool) -> Dag:
    """A random graph in layers, its joins of every kind, and how each member would end."""
    width = max(3, nodes // chance.randint(4, 8))
    names = [f"m{number:03}" for number in range(nodes)]
    upstreams: dict[str, list[str]] = {}
    policies: dict[str, JoinPolicy] = {}
    for number, name in enumerate(names):
        above = names[max(0, number // width - 2) * width : number // width * width]
        ups = chance.sample(above, min(len(above), chance.randint(1, 5)))
        upstreams[name] = ups
        if ups:
            way = chance.choice(("cancel_remaining", "let_run")) if cancelling else "let_run"
            policies[name] = chance.choice(
                [AllOf(), AllOf(), AnyOf(way), Quorum(chance.randint(1, len(ups)), way)]
            )
    outcomes = {name: chance.choices("SFC", (80, 15, 5))[0] for name in names}
    return Dag(upstreams, policies, outcomes)


class Run:
    """One graph in the database, its workers, and a dispatcher that dies."""

    def __init__(self, db: Connection, flow: Graph, dag: Dag, chance: random.Random) -> None:
        self.db, self.flow, self.dag, self.chance = db, flow, dag, chance
        self.names = {each: name for name, each in flow.ids.items()}
        self.crashes = 0

    async def work(self, limit: int) -> int:
        """Workers take what they get and end it as it is to end; how many."""
        tasks = await claim(self.db, given.WORKER, ttl=600, limit=limit)
        ends = {
            task.lease: self.dag.outcomes[self.names[task.lease.execution_id]] for task in tasks
        }
        cancelled = [lease.execution_id for lease, letter in ends.items() if letter == "C"]
        await end_all(self.db, cancelled, "C")
        await end_leases(
            self.db, {lease: letter for lease, letter in ends.items() if letter != "C"}
        )
        return len(tasks)

    async def mortal(self, step: Callable[[Connection], Awaitable[T]]) -> T:
        """The step in a transaction, on a connection that dies."""
        async with self.db.transaction():
            return await step(Mortal(self.db, self.chance))  # type: ignore[arg-type]

    async def tried(self, step: Callable[[Connection], Awaitable[object]]) -> None:
        try:
            await self.mortal(step)
        except Crash:
            self.crashes += 1

    async def surely(self, step: Callable[[Connection], Awaitable[T]]) -> T:
        """Tried until it survives."""
        while True:
            try:
                return await self.mortal(step)
            except Crash:
                self.crashes += 1

    async def plainly(self, step: Callable[[Connection], Awaitable[T]]) -> T:
        async with self.db.transaction():
            return await step(self.db)

    async def unordered(self) -> None:
        """Workers and dispatchers, anybody at any time; then without crashes to the end."""

        async def dispatch_some(conn: Connection) -> Dispatched:
            return await dispatch_batch(conn, self.chance.choice((1, 3, 256)))

        for _ in range(40):
            if self.chance.random() < 0.4:
                await self.work(self.chance.randint(1, 20))
            else:
                await self.tried(dispatch_some)
        while await self.work(200) or (await self.plainly(dispatch_batch)).ends:
            pass

    async def in_turns(self) -> None:
        """All that may run ends, then all ends are carried, and so on."""
        while await self.work(200):
            while (done := await self.surely(dispatch_batch)).ends:
                while done.siblings and await self.surely(cancel_siblings):
                    pass

    async def ended(self) -> dict[str, str]:
        rows = await self.flow.fetch("SELECT execution_id, public_state FROM ff.exec_core")
        by_uuid = {each.uuid: name for each, name in self.names.items()}
        return {by_uuid[row["execution_id"]]: LETTERS[row["public_state"]] for row in rows}


@pytest.mark.parametrize("seed", SEEDS)
async def test_whenever_the_dispatcher_dies_the_outcome_is_the_same(
    db: Connection, ff_engine: Engine, seed: int
) -> None:
    chance = random.Random(seed)
    in_turns = seed % 2 == 1
    large = seed % 20 in (0, 11)
    dag = grown(chance, 200 if large else chance.randint(20, 40), cancelling=in_turns)
    flow = await submitted(ff_engine, dag.arrows, policies=dag.policies)
    run = Run(db, flow, dag, chance)

    await (run.in_turns() if in_turns else run.unordered())

    expected = letters_in_turns(dag) if in_turns else final_letters(dag)
    assert await run.ended() == {name: STATES[letter] for name, letter in expected.items()}
    assert run.crashes > 0
    [left] = await flow.fetch(
        "SELECT (SELECT count(*) FROM ff.completion_event WHERE dispatched_at_ms IS NULL),"
        " (SELECT count(*) FROM ff.completion_event), (SELECT count(*) FROM ff.edge"
        " WHERE resolution = 'unresolved'), (SELECT count(*) FROM ff.pending_cancel_groups)"
    )
    assert tuple(left) == (0, len(dag.upstreams), 0, 0)
    assert await flow.derived() in ("completed", "failed")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cancelling", [True, False])
async def test_many_workers_that_all_dispatch_come_to_an_end(
    ff_engine: Engine, seed: int, cancelling: bool
) -> None:
    """Nobody takes turns; a worker gives up once everything has ended."""
    chance = random.Random(1000 + seed)
    dag = grown(chance, 120, cancelling=cancelling)
    flow = await submitted(ff_engine, dag.arrows, policies=dag.policies)
    names = {each: name for name, each in flow.ids.items()}

    async def work() -> None:
        while (await flow.fetch(UNFINISHED))[0][0]:
            tasks = await ff_engine.claim(given.WORKER, ttl=600, limit=chance.randint(1, 6))
            by_letter: dict[str, list[Lease]] = {"S": [], "F": [], "C": []}
            for task in tasks:
                by_letter[dag.outcomes[names[task.lease.execution_id]]].append(task.lease)
            await ff_engine.complete([Completion(lease) for lease in by_letter["S"]])
            lost = [*by_letter["F"], *by_letter["C"]]
            await ff_engine.fail(
                [Failure(lease=lease, reason="boom", category="permanent") for lease in lost]
            )
            await ff_engine.dispatch()
            await flow.tick()

    async with asyncio.timeout(30):
        await asyncio.gather(*(work() for _ in range(4)))

    states = await flow.fetch("SELECT execution_id, public_state FROM ff.exec_core")
    found = {
        names[ExecutionId(flow["m000"].partition_key, row["execution_id"])]: row["public_state"]
        for row in states
    }
    ended = {"completed", "failed", "skipped", "cancelled"}
    assert set(found.values()) <= ended
    if not cancelling:
        words = {"S": "completed", "F": "failed", "C": "failed", "K": "skipped"}
        assert found == {name: words[letter] for name, letter in final_letters(dag).items()}
