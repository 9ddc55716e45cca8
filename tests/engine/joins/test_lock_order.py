"""Executions are locked by id, whichever depends on which: a batch never deadlocks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from flowfabric.db.rows import Connection
from flowfabric.db.steps import stepped
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.spawn_children import spawn_children
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.ids import ExecutionId, child_id
from tests import given
from tests.db.facts import is_blocked
from tests.engine.controls import Another, execution
from tests.engine.flows.graphs import done_or_waiting, submitted
from tests.engine.joins import parents
from tests.engine.joins.invariants import broken_invariants


class Batch:
    """Executions that are locked by id once a step of another operation is reached."""

    def __init__(
        self, db: Connection, conn: Connection, step: str, executions: Sequence[ExecutionId]
    ) -> None:
        self._db, self._conn, self._step = db, conn, step
        self._executions = executions
        self._task: asyncio.Task[object] | None = None
        self.reached = 0

    async def __call__(self, _: Connection, step: str) -> None:
        self.reached += step == self._step
        if step == self._step and self._task is None:
            locking = lock_executions(self._conn, self._executions)
            self._task = await given.blocked(self._db, self._conn, locking)

    async def done(self) -> bool:
        """Neither it nor the other one was the victim of a deadlock."""
        assert self._task is not None
        await self._task
        return self.reached == 1


def parent(*, before: bool) -> ExecutionId:
    """An id that sorts before, or after, those of the children which it will have."""
    while True:
        found = ExecutionId.mint()
        children = [child_id(found, 0, index, kind="child") for index in (0, 1)]
        if all((found < child) is before for child in children):
            return found


@pytest.mark.parametrize("before", [True, False], ids=["parent first", "children first"])
async def test_a_parent_that_runs_again_and_its_children(
    ff_engine: Engine, db: Connection, another: Another, before: bool
) -> None:
    family = await parents.parent(ff_engine, db, execution_id=parent(before=before))
    await family.spawn("ab")
    await family.cancel("p")
    await family.settle()
    await family.replay("p")
    await family.take_up()
    batch = Batch(db, await another(), "joins.reopen_join: the edges", [*family.ids.values()])

    with stepped(batch):
        await family.spawn("ab")

    assert await batch.done()


@pytest.mark.parametrize("before", [True, False], ids=["parent first", "children first"])
async def test_a_parent_and_children_that_it_had(
    ff_engine: Engine, db: Connection, another: Another, before: bool
) -> None:
    family = await parents.parent(ff_engine, db, execution_id=parent(before=before))
    await family.spawn("ab")
    batch = Batch(db, await another(), "flows.grow_flow", [*family.ids.values()])

    with stepped(batch):
        await ff_engine.spawn_children(family.lease, family.born("ab"), group=family.join(1))

    assert await batch.done()


@pytest.mark.parametrize("arrows", ["a>d", "d a>d"], ids=["upstream first", "downstream first"])
async def test_a_skipped_member_and_its_upstreams(
    ff_engine: Engine, db: Connection, another: Another, arrows: str
) -> None:
    flow = await submitted(ff_engine, arrows)
    await flow.fail("a")
    await flow.carry_all()
    batch = Batch(db, await another(), "lifecycle.restart", [*flow.ids.values()])

    with stepped(batch):
        await flow.replay("d")

    assert await batch.done()


async def test_a_child_that_ends_while_it_is_adopted_is_known_by_its_end(
    ff_engine: Engine, db: Connection, another: Another
) -> None:
    await execution(db, "cancelled")
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab")
    [lease] = await family.claim("a")
    holder, spawner, eyes = await another(), await another(), await another()
    ending = holder.transaction()
    ends: list[asyncio.Task[object]] = []

    async def step(_: Connection, name: str) -> None:
        if name == "flows.grow_flow":
            await ending.start()
            ends.append(await done_or_waiting(eyes, complete(holder, [Completion(lease, b"1")])))

    async def spawn() -> None:
        async with spawner.transaction():
            with stepped(step):
                new = family.born("ab")
                await spawn_children(spawner, family.lease, new, group=family.join(1))

    spawning = asyncio.create_task(spawn())
    async with asyncio.timeout(10):
        while not spawning.done() and not (await is_blocked(db, spawner) and ends):
            pass
    await ends[0]
    await ending.commit()
    await spawning
    await family.carry_all()

    assert await family.waited(1) == "1/0/0/1 pending"
    assert await broken_invariants(db) == {}


async def test_a_parent_that_gets_children_by_two_calls_at_once_is_counted_once(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parents.parent(ff_engine, db)
    first_done = False

    async def step(_: Connection, name: str) -> None:
        nonlocal first_done
        if name == "flows.create_flow" and not first_done:
            first_done = True
            await asyncio.create_task(family.spawn("ab"))

    with stepped(step):
        await family.spawn("cd", position=1)

    assert (await family.flow())["node_count"] == 5
    assert await broken_invariants(db) == {}
