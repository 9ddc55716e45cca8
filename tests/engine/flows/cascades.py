"""Graphs whose dispatcher dies at any statement, any number of times, and what is left of them.

Half of the runs go without any order between workers and dispatchers, where the outcome does not
depend on it: nobody is cancelled for others. Some of their members wait for children of their own
while the rest of their upstreams end. The other half, with races that cancel their losers, goes in
turns.

Here the dispatcher is a connection that raises; in `make prove` it is a process that is killed.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from flowfabric.db.faults import statement_name
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.cancel_siblings import cancel_siblings
from flowfabric.engine.joins.dispatch_completions import dispatch_batch
from flowfabric.engine.joins.spawn_children import spawn_children
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.wait_children import ChildWait, wait_children
from flowfabric.ids import ExecutionId, child_id, children_group_id
from flowfabric.joins import AllOf, AnyOf, JoinPolicy, Quorum
from tests import given
from tests.engine.flows.graphs import LETTERS, Graph, end_all, end_leases, submitted
from tests.engine.flows.model import Dag, final_letters, letters_in_turns

T = TypeVar("T")
STATES = {"S": "ok", "F": "f", "C": "c", "K": "k"}
STEPS: Mapping[str, Callable[[Connection, int], Awaitable[Any]]] = {
    "dispatch": dispatch_batch,
    "cancel_siblings": cancel_siblings,
}
"""What a dispatcher does, each in a transaction of its own."""

WAITING = """
SELECT g.waiter_eid FROM ff.edge_group g
 WHERE g.waits_as = 'children' AND g.group_state = 'pending' AND g.waiter_eid = ANY ($1::uuid[])
"""

LEFT = """
SELECT (SELECT count(*) FROM ff.completion_event WHERE dispatched_at_ms IS NULL) AS undispatched,
       (SELECT count(*) FROM ff.completion_event) AS told,
       (SELECT count(*) FROM ff.edge WHERE resolution = 'unresolved') AS unresolved,
       (SELECT count(*) FROM ff.pending_cancel_groups) AS listed
"""


def moved(answer: Any) -> int:
    """How much a step did."""
    return getattr(answer, "completions", answer)


class Crash(Exception):
    """The process died."""


class Mortal:
    """A connection whose process dies at its n-th statement, before or after it is run."""

    def __init__(self, conn: Connection, chance: random.Random) -> None:
        self._conn = conn
        self._left = chance.randint(1, 14)
        self._before = chance.random() < 0.5
        self.ran: list[str] = []
        self.died_at = ""

    async def fetch(self, *args: Any) -> Any:
        return await self._run(self._conn.fetch, *args)

    async def execute(self, *args: Any) -> Any:
        return await self._run(self._conn.execute, *args)

    async def _run(self, statement: Callable[..., Awaitable[T]], *args: Any) -> T:
        self._left -= 1
        self.ran.append(statement_name(args[0]))
        if self._left == 0:
            self.died_at = f"{'before' if self._before else 'after'} {self.ran[-1]}"
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

    waiting_share = 0.15
    """Of the members, how many wait for children of their own."""

    def __init__(self, db: Connection, flow: Graph, dag: Dag, chance: random.Random) -> None:
        self.db, self.flow, self.dag, self.chance = db, flow, dag, chance
        self.names = {each: name for name, each in flow.ids.items()}
        self.children: set[ExecutionId] = set()
        self.crashes: list[str] = []
        self.ran: set[str] = set()
        self.early: list[str] = []
        """Who was handed out although children of its own were still awaited."""

    # Workers.

    async def work(self, limit: int, *, children: bool = False) -> int:
        """Workers take what they get and end it as it is to end; how many.

        With `children`, some wait for children first when they are taken up for the first time.
        """
        tasks = await claim(self.db, given.WORKER, ttl=600, limit=limit)
        await self._note_early([task.lease.execution_id for task in tasks])
        ends: dict[Lease, str] = {}
        for task in tasks:
            lease = task.lease
            first = lease.lease_epoch == 1 and lease.execution_id in self.names
            if children and first and self.chance.random() < self.waiting_share:
                await self._wait_for_children(lease)
            else:
                ends[lease] = self._letter(lease.execution_id)
        cancelled = [lease.execution_id for lease, letter in ends.items() if letter == "C"]
        await end_all(self.db, cancelled, "C")
        await end_leases(
            self.db, {lease: letter for lease, letter in ends.items() if letter != "C"}
        )
        return len(tasks)

    def _letter(self, execution_id: ExecutionId) -> str:
        return "S" if execution_id in self.children else self.dag.outcomes[self.names[execution_id]]

    async def _wait_for_children(self, lease: Lease) -> None:
        parent = lease.execution_id
        group = children_group_id(parent, 0)
        children = [
            given.new(execution_id=child_id(parent, 0, number, kind="job")) for number in range(2)
        ]
        async with self.db.transaction():
            await spawn_children(self.db, lease, children, group=group)
            await wait_children(self.db, [ChildWait(lease=lease, groups=(group,))])
        self.children |= {each.execution_id for each in children}

    async def _note_early(self, taken: Sequence[ExecutionId]) -> None:
        rows = await self.db.fetch(WAITING, [each.uuid for each in taken])
        waiting = {row["waiter_eid"] for row in rows}
        self.early += [self.names[each] for each in taken if each.uuid in waiting]

    # The dispatcher.

    async def mortal(self, name: str, limit: int) -> int:
        """The step in a transaction, on a connection that dies.

        How much it moved; raises `Crash`.
        """
        conn = Mortal(self.db, self.chance)
        try:
            async with self.db.transaction():
                return moved(await STEPS[name](conn, limit))  # type: ignore[arg-type]
        except Crash:
            self.crashes.append(conn.died_at)
            raise
        finally:
            self.ran.update(conn.ran)

    async def tried(self, name: str, limit: int) -> None:
        with contextlib.suppress(Crash):
            await self.mortal(name, limit)

    async def surely(self, name: str) -> int:
        """Tried until it survives."""
        while True:
            try:
                return await self.mortal(name, 256)
            except Crash:
                continue

    async def plainly(self, name: str) -> int:
        async with self.db.transaction():
            return moved(await STEPS[name](self.db, 256))

    async def unordered(self) -> None:
        """Workers and dispatchers, anybody at any time; then without crashes to the end."""
        for _ in range(40):
            if self.chance.random() < 0.4:
                await self.work(self.chance.randint(1, 20), children=True)
            else:
                await self.tried("dispatch", self.chance.choice((1, 3, 256)))
        while await self.work(200) or await self.plainly("dispatch"):
            pass

    async def in_turns(self) -> None:
        """All that may run ends, then all ends are carried, and so on.

        One that died may have committed: nobody knows what it left, so siblings are always tried
        before the next dispatch.
        """
        while await self.work(200):
            going = True
            while going:
                try:
                    going = await self.mortal("dispatch", 256) > 0
                except Crash:
                    going = True
                while await self.surely("cancel_siblings"):
                    going = True

    # What is left.

    async def ended(self) -> dict[str, str]:
        rows = await self.flow.fetch("SELECT execution_id, public_state FROM ff.execution")
        by_uuid = {each.uuid: name for each, name in self.names.items()}
        by_uuid |= {each.uuid: f"child {each.uuid}" for each in self.children}
        return {by_uuid[row["execution_id"]]: LETTERS[row["public_state"]] for row in rows}

    async def faults(self, expected: dict[str, str]) -> list[str]:
        """Whatever is not as it is to be once all has ended, in an otherwise empty database."""
        ended = await self.ended()
        expected = expected | {f"child {each.uuid}": "S" for each in self.children}
        found = [f"{name} was handed out while its children were awaited" for name in self.early]
        found += [
            f"{name} is {ended.get(name)}, not {STATES[letter]}"
            for name, letter in expected.items()
            if ended.get(name) != STATES[letter]
        ]
        [left] = await self.flow.fetch(LEFT)
        clean = {"undispatched": 0, "told": len(expected), "unresolved": 0, "listed": 0}
        if dict(left) != clean:
            found.append(f"left over: {dict(left)}")
        if (derived := await self.flow.derived()) not in ("completed", "failed"):
            found.append(f"the flow is {derived}")
        return found


async def crashing_cascade(
    db: Connection,
    engine: Engine,
    chance: random.Random,
    *,
    nodes: int,
    in_turns: bool,
    run_of: Callable[[Connection, Graph, Dag, random.Random], Run] = Run,
) -> tuple[Run, list[str]]:
    """A graph, run to its end with a dispatcher that dies again and again; what is wrong then."""
    dag = grown(chance, nodes, cancelling=in_turns)
    flow = await submitted(engine, dag.arrows, policies=dag.policies)
    run = run_of(db, flow, dag, chance)
    await (run.in_turns() if in_turns else run.unordered())
    return run, await run.faults(letters_in_turns(dag) if in_turns else final_letters(dag))
