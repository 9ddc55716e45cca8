"""The executions of plain submits: one call each, without options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flowfabric.app.task import Call, Task
from flowfabric.client.new_executions import new_executions
from flowfabric.client.options import PLAIN, Options
from flowfabric.ids import ExecutionId, new_uuid, uuid_partition
from flowfabric.tracing import tracer

if TYPE_CHECKING:
    from flowfabric.engine.lifecycle.create_execution import NewExecution

_REMEMBERED: Final = 256


class PlainSubmits:
    """Keeps the first plain execution of each task: the next ones differ in id and payload only.

    The other fields are therefore made and checked once. A program that traces its submits makes
    every execution anew, because each has a trace context of its own.
    """

    def __init__(self, *, partitions: int) -> None:
        self._partitions = partitions
        self._first: dict[tuple[Task[..., Any], str, str], NewExecution] = {}

    def new_execution(
        self, call: Call[Any], options: Options, *, namespace: str, creator: str
    ) -> NewExecution:
        """The execution to create for the call, plain or not; raises `ValidationError`."""
        task = call.task
        if options is not PLAIN or task.limit is not None or tracer() is not None:
            return self._made(call, options, namespace, creator)
        key = (task, namespace, creator)
        first = self._first.get(key)
        if first is None:
            if len(self._first) >= _REMEMBERED:
                self._first.clear()
            first = self._first[key] = self._made(call, options, namespace, creator)
            return first
        uuid = new_uuid()
        return first.like(ExecutionId(uuid_partition(uuid, self._partitions), uuid), call.payload)

    def _made(
        self, call: Call[Any], options: Options, namespace: str, creator: str
    ) -> NewExecution:
        [made] = new_executions(
            [call],
            [options],
            namespace=namespace,
            creator=creator,
            partitions=self._partitions,
        )
        return made
