"""What operations are called on, made over a good line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from uuid import UUID, uuid4

from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.submission import NewFlow
from flowfabric.engine.lifecycle.claim import Claimant, Claimed
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.operators.block_execution_for_admission import Blocked
from flowfabric.ids import ExecutionId, child_id, children_group_id
from tests import given
from tests.engine.flows.graphs import member

WORKER: Final = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("default",))


async def numbers(engine: Engine, number: int) -> Sequence[int]:
    return range(number)


async def new(engine: Engine, number: int) -> Sequence[NewExecution]:
    return [given.new() for _ in range(number)]


async def keyed(engine: Engine, number: int) -> Sequence[NewExecution]:
    return [given.new(idempotency_key=f"key {count}") for count in range(number)]


async def waiting(engine: Engine, number: int, **fields: Any) -> Sequence[ExecutionId]:
    new = [given.new(**fields) for _ in range(number)]
    await engine.create_execution(new)
    return [each.execution_id for each in new]


async def for_two_claims_each(engine: Engine, number: int) -> Sequence[int]:
    await waiting(engine, 2 * number)
    return range(number)


async def held(engine: Engine, number: int, **fields: Any) -> Sequence[Lease]:
    await waiting(engine, number, **fields)
    return [each.lease for each in await engine.claim(WORKER, ttl=3600, limit=number)]


async def claimed(engine: Engine, number: int) -> Sequence[Claimed]:
    await waiting(engine, number)
    return await engine.claim(WORKER, ttl=3600, limit=number)


async def held_with_retries(engine: Engine, number: int) -> Sequence[Lease]:
    return await held(engine, number, policy=given.retrying(9))


async def held_with_children(engine: Engine, number: int) -> Sequence[Lease]:
    leases = await held(engine, number)
    await each(leases, lambda lease: spawn(engine, lease))
    return leases


async def ended(engine: Engine, number: int) -> Sequence[ExecutionId]:
    leases = await held(engine, number)
    await engine.complete([Completion(lease) for lease in leases])
    return [lease.execution_id for lease in leases]


async def blocked(engine: Engine, number: int) -> Sequence[ExecutionId]:
    ids = await waiting(engine, number)
    await each(ids, lambda each: block(engine, each))
    return ids


async def lanes(engine: Engine, number: int) -> Sequence[str]:
    lanes = [f"lane-{count}" for count in range(number)]
    await engine.register_lanes(lanes, registered_by="proof")
    return lanes


async def ids(engine: Engine, number: int) -> Sequence[UUID]:
    return [uuid4() for _ in range(number)]


async def flows(engine: Engine, number: int) -> Sequence[NewFlow]:
    """Flows of two members that nothing links yet."""
    return [
        NewFlow(flow_id=flow, flow_kind="pipeline", members=[member(flow), member(flow)])
        for flow in await ids(engine, number)
    ]


async def submitted(engine: Engine, number: int) -> Sequence[NewFlow]:
    made = await flows(engine, number)
    await each(made, engine.submit_flow)
    return made


async def strangers(engine: Engine, number: int) -> Sequence[tuple[UUID, ExecutionId]]:
    """Executions beside one flow."""
    flow_id = uuid4()
    await engine.create_flow(flow_id, flow_kind="pipeline")
    new = [member(flow_id) for _ in range(number)]
    await engine.create_execution(new)
    return [(flow_id, each.execution_id) for each in new]


async def members(engine: Engine, number: int) -> Sequence[tuple[UUID, ExecutionId]]:
    """Members of one flow."""
    flow_id = uuid4()
    new = [member(flow_id) for _ in range(number)]
    await engine.submit_flow(NewFlow(flow_id=flow_id, flow_kind="pipeline", members=new))
    return [(flow_id, each.execution_id) for each in new]


async def staged(engine: Engine, number: int) -> Sequence[tuple[UUID, UUID]]:
    """Edges of one flow that were not applied yet."""
    (flow_id, first), *others = await members(engine, number + 1)
    edges: list[tuple[UUID, UUID]] = []
    for revision, (_, other) in enumerate(others):
        edges.append((flow_id, uuid4()))
        await engine.stage_dependency_edge(
            *edges[-1], first, other, expected_graph_revision=number + 1 + revision
        )
    return edges


async def each(subjects: Sequence[Any], call: Callable[[Any], Awaitable[Any]]) -> None:
    """One call for each, a few at a time."""
    todo = iter(subjects)

    async def work() -> None:
        for subject in todo:
            await call(subject)

    await asyncio.gather(*(work() for _ in range(4)))


async def block(engine: Engine, execution_id: ExecutionId) -> Blocked:
    return await engine.block_execution_for_admission(execution_id, "paused_by_operator")


async def spawn(engine: Engine, lease: Lease) -> Any:
    parent = lease.execution_id
    child = given.new(execution_id=child_id(parent, 0, 0, kind="job"), lane_id="nobody")
    return await engine.spawn_children(lease, [child], group=children_group_id(parent, 0))
