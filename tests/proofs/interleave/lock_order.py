"""Does every operation lock executions in the order of their ids, also within one statement?

Steps are whole statements, and no order of steps shows in which order one statement takes its rows.
So a bystander holds one row while the operation begins and then a batch that locks every row in
order: each waits with what it has locked so far. Once the bystander lets go, the two deadlock if
the operation has locked a row that lies beyond one which it still needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import msgspec

from tests.proofs.interleave.actor import Actor
from tests.proofs.interleave.operations import Operation
from tests.proofs.interleave.saved import restore
from tests.proofs.interleave.scene import Scene
from tests.proofs.interleave.stage import LOOK_AFTER, WAITS, Stage

HOLD = "SELECT FROM ff.{} WHERE execution_id = $1 FOR NO KEY UPDATE"
BYSTANDER = 2
"""The engine of the stage that nobody else plays on."""


class Batch(msgspec.Struct, frozen=True):
    """An operation that locks several rows of a table in a situation, by ascending id."""

    situation: str
    operation: Operation
    table: str
    locks: tuple[UUID, ...]

    @property
    def meets_at(self) -> tuple[UUID, ...]:
        """Where a batch in order has locked something before, and waits."""
        return self.locks[1:]


class Crossed(msgspec.Struct):
    """What was counted over many meetings."""

    operations: set[str] = msgspec.field(default_factory=set[str])
    meetings: int = 0
    waited: int = 0
    """Meetings at which the operation waited for the bystander."""
    faults: list[str] = msgspec.field(default_factory=list[str])


async def meet(
    stage: Stage, scene: Scene, batch: Batch, everybody: Operation, crossed: Crossed
) -> None:
    """The operation meets the batch that locks in order, at each row that both lock."""
    crossed.operations.add(batch.operation.name)
    for row in batch.meets_at:
        crossed.meetings += 1
        operations = (batch.operation, everybody)
        waited, deadlocks = await _met(stage, scene, operations, HOLD.format(batch.table), row)
        crossed.waited += waited
        if deadlocks:
            crossed.faults.append(
                f"{batch.situation}: {batch.operation.name} locks {batch.table} out of order:"
                f" it deadlocks with {everybody.name} when both wait at"
                f" {scene.known.text(str(row))}"
            )


async def _met(
    stage: Stage, scene: Scene, operations: Sequence[Operation], hold: str, row: UUID
) -> tuple[bool, int]:
    """Did the first wait for the bystander, and how many deadlocks were there then?"""
    await restore(stage.db, scene.name)
    actors: list[Actor] = []
    async with stage.engines[BYSTANDER].pool.connection() as bystander:
        holding = bystander.transaction()
        await holding.start()
        try:
            await bystander.execute(hold, row)
            waited = False
            for n, operation in enumerate(operations):
                actors.append(
                    Actor(lambda n=n, one=operation: one.call(stage.engines[n], scene, n))
                )
                await _come_to_rest(stage, actors, bystander.get_server_pid())
                waited |= n == 0 and not actors[0].done
        finally:
            await holding.rollback()
    deadlocks = 0
    try:
        while not all(actor.done for actor in actors):
            deadlocks += await stage.settle(actors)
            _go_on(actors)
    finally:
        for actor in actors:
            await actor.close()
    return waited, deadlocks


async def _come_to_rest(stage: Stage, actors: Sequence[Actor], bystander: int) -> None:
    """Let them run until each is done, polls, or waits for a lock of another."""
    while True:
        _go_on([actor for actor in actors if not actor.polls])
        under_way = [actor for actor in actors if actor.under_way]
        if not under_way:
            if all(actor.done or actor.polls for actor in actors):
                return
            await asyncio.sleep(0)
            continue
        waits = [asyncio.ensure_future(actor.settled.wait()) for actor in under_way]
        await asyncio.wait(waits, timeout=LOOK_AFTER, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if any(actor.settled.is_set() for actor in under_way):
            continue
        pids = [actor.pid for actor in under_way]
        everybody = [*(actor.pid for actor in actors), bystander]
        blocked = {row["pid"] for row in await stage.db.fetch(WAITS, pids, everybody)}
        if set(pids) <= blocked and all(actor.under_way for actor in under_way):
            return


def _go_on(actors: Sequence[Actor]) -> None:
    for actor in actors:
        if actor.ready:
            actor.go()
