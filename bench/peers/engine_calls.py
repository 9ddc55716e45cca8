"""Executions by direct calls of the engine, in batches, without a client or a worker."""

from collections.abc import Sequence
from typing import Any, Final

from flowfabric_app import NAMESPACE
from metering import encoded

from flowfabric import Engine, ExecutionId
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.create_execution import NewExecution

LANE: Final = "default"
CREATED: Final = 1_000
CLAIMED: Final = 200
TTL: Final = 3_600.0


def executions(n: int, *, lane: str = LANE, kinds: Sequence[str] = ("noop",)) -> list[NewExecution]:
    """`n` executions of the kinds in turn."""
    return [
        NewExecution(
            execution_id=ExecutionId.mint(namespace=NAMESPACE),
            execution_kind=kinds[i % len(kinds)],
            lane_id=lane,
            namespace=NAMESPACE,
            input_payload=encoded(i),
            payload_encoding="json",
        )
        for i in range(n)
    ]


def claimant(*, lane: str = LANE, kinds: Sequence[str] = ("noop",)) -> Claimant:
    """A worker that serves these kinds."""
    return Claimant(
        worker_id="bench",
        worker_instance_id="bench-1",
        lanes=(lane,),
        namespace=NAMESPACE,
        kinds=tuple(kinds),
    )


async def created(
    engine: Engine, n: int, *, lane: str = LANE, kinds: Sequence[str] = ("noop",)
) -> None:
    """`n` more executions are queued."""
    for start in range(0, n, CREATED):
        await engine.create_execution(executions(min(CREATED, n - start), lane=lane, kinds=kinds))


async def claimed(engine: Engine, n: int, *, lane: str = LANE) -> list[Any]:
    """Lease `n` executions; the list is shorter if there are no more."""
    tasks: list[Any] = []
    while len(tasks) < n:
        limit = min(CREATED, n - len(tasks))
        more = await engine.claim(claimant(lane=lane), ttl=TTL, limit=limit)
        if not more:
            break
        tasks += more
    return tasks


async def completed(engine: Engine, tasks: Sequence[Any]) -> None:
    """The executions have ended with success. Raises `RuntimeError` if one was refused."""
    answers = await engine.complete([Completion(task.lease) for task in tasks])
    if refused := [answer for answer in answers if isinstance(answer, Exception)]:
        raise RuntimeError(f"{len(refused)} refused: {refused[0]}")
