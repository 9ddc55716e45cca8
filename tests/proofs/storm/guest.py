"""A client of a flow that many others change at the same time, doing whatever chance has it do."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.stage_dependency_edge import EdgeStaged
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import FlowFabricError, RetryExhausted, StaleGraphRevision
from flowfabric.ids import ExecutionId, new_uuid, uuid_partition
from tests import given
from tests.proofs.interleave.actor import is_raw

WEIGHTS = {
    "add": 4,
    "stage": 6,
    "apply": 6,
    "claim": 6,
    "complete": 8,
    "fail": 2,
    "release": 1,
    "renew": 4,
    "dispatch": 6,
    "cancel": 2,
    "change_priority": 3,
    "replay": 3,
    "cancel_some": 1,
    "change_priorities": 4,
    "replay_some": 2,
    "tag": 1,
    "summarise": 1,
    "describe": 2,
}


class Board:
    """What all guests know: the flow, its members in the order in which edges may lead."""

    def __init__(self, flow_id: UUID) -> None:
        self.flow_id = flow_id
        self.home = uuid_partition(flow_id)
        self.members: list[ExecutionId] = []
        self.staged: list[UUID] = []
        self.leases: list[Lease] = []
        self.revision = 0
        self.answers: Counter[str] = Counter()
        self.raw: list[str] = []

    @property
    def asked(self) -> int:
        return sum(self.answers.values())

    def hear(self, name: str, error: FlowFabricError | Exception | None) -> None:
        """Count an answer."""
        if error is None:
            self.answers["done"] += 1
        elif is_raw(error):
            self.answers["raw"] += 1
            self.raw.append(f"{name}: {error!r}")
        elif isinstance(error, RetryExhausted):
            self.answers["retry exhausted"] += 1
        else:
            self.answers["refused"] += 1


class Guest:
    """One client, on an engine of its own or on one that it shares."""

    def __init__(self, engine: Engine, board: Board, chance: random.Random, number: int) -> None:
        self._engine, self._board, self._chance = engine, board, chance
        self._claimant = Claimant(
            worker_id="w", worker_instance_id=f"w-{number}", lanes=("default",)
        )

    async def act(self, times: int) -> None:
        """So many operations, one after the other."""
        for _ in range(times):
            [name] = self._chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
            call: Callable[[], Awaitable[Any]] = getattr(self, f"_{name}")
            try:
                await call()
            except Exception as error:
                self._board.hear(name, error)
            else:
                self._board.hear(name, None)

    def _member(self) -> ExecutionId:
        return self._chance.choice(self._board.members)

    def _lease(self) -> Lease | None:
        leases = self._board.leases
        return leases.pop(self._chance.randrange(len(leases))) if leases else None

    async def _add(self) -> None:
        new = given.new(
            execution_id=ExecutionId(self._board.home, new_uuid()), policy=given.retrying(1)
        )
        await self._engine.create_execution([new])
        await self._engine.add_execution_to_flow(self._board.flow_id, new.execution_id)
        self._board.members.append(new.execution_id)

    async def _stage(self) -> None:
        board = self._board
        first, second = sorted(self._chance.sample(range(len(board.members)), 2))
        edge_id = new_uuid()
        staged: EdgeStaged | None = None
        while staged is None:
            try:
                staged = await self._engine.stage_dependency_edge(
                    board.flow_id,
                    edge_id,
                    board.members[first],
                    board.members[second],
                    expected_graph_revision=board.revision,
                )
            except StaleGraphRevision as stale:
                board.revision = max(board.revision, stale.current)
                if self._chance.random() < 0.2:
                    raise
        board.revision = max(board.revision, staged.new_graph_revision)
        board.staged.append(edge_id)

    async def _apply(self) -> None:
        if self._board.staged:
            edge_id = self._board.staged.pop(self._chance.randrange(len(self._board.staged)))
            await self._engine.apply_dependency_to_child(self._board.flow_id, edge_id)

    async def _claim(self) -> None:
        for claimed in await self._engine.claim(self._claimant, ttl=600, limit=2):
            self._board.leases.append(claimed.lease)

    async def _complete(self) -> None:
        if (lease := self._lease()) is not None:
            await self._engine.complete([Completion(lease, b"1")])

    async def _fail(self) -> None:
        if (lease := self._lease()) is not None:
            category = self._chance.choice(("transient", "permanent"))
            await self._engine.fail([Failure(lease=lease, reason="boom", category=category)])

    async def _release(self) -> None:
        if (lease := self._lease()) is not None:
            await self._engine.release([lease])

    async def _renew(self) -> None:
        if self._board.leases:
            await self._engine.renew(self._board.leases[:20], ttl=600)

    async def _dispatch(self) -> None:
        await self._engine.dispatch()

    async def _cancel(self) -> None:
        await self._engine.cancel_execution(self._member(), reason="not wanted")

    async def _change_priority(self) -> None:
        await self._engine.change_priority(self._member(), self._chance.randint(0, 100))

    async def _replay(self) -> None:
        await self._engine.replay_execution(self._member())

    def _some(self) -> list[ExecutionId]:
        return self._chance.choices(self._board.members, k=8)

    async def _cancel_some(self) -> None:
        await self._engine.cancel_executions(self._some(), reason="not wanted")

    async def _change_priorities(self) -> None:
        await self._engine.change_priorities(self._some(), self._chance.randint(0, 100))

    async def _replay_some(self) -> None:
        await self._engine.replay_executions(self._some())

    async def _tag(self) -> None:
        await self._engine.set_execution_tag(self._member(), "a.b", "c")

    async def _summarise(self) -> None:
        await self._engine.project_flow_summary(self._board.flow_id)

    async def _describe(self) -> None:
        await self._engine.describe_flow(self._board.flow_id)
