"""Submits of one call each: those that are made meanwhile travel together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from flowfabric.app.task import Call, Task
from flowfabric.client.new_executions import new_executions
from flowfabric.client.options import PLAIN, Options
from flowfabric.db.batcher import Batcher
from flowfabric.engine.lifecycle.alike_batch import AlikeBatch, Pattern
from flowfabric.engine.lifecycle.create_execution import NewExecution, check_payload
from flowfabric.ids import ExecutionId, new_uuids, uuid_partition
from flowfabric.tracing import tracer

if TYPE_CHECKING:
    from flowfabric.engine.lifecycle.create_execution import Creation
    from flowfabric.remote.engine_like import EngineLike

_PER_STATEMENT: Final = 500
_REMEMBERED: Final = 256


class PlainSubmit(msgspec.Struct, gc=False):
    """A submit without options. It gets its id when it is first sent, and keeps it."""

    pattern: Pattern
    payload: bytes
    partition_key: int = 0
    uuid: UUID | None = None


Submit = PlainSubmit | NewExecution
"""What one call of `submit` sends; an execution if it has options or a limit."""


class Submits:
    """Keeps a pattern for each task: its plain executions differ in id and payload only.

    The other fields are therefore made and checked once. A program that traces its submits makes
    every execution anew, because each has a trace context of its own.
    """

    def __init__(self, engine: EngineLike) -> None:
        self._engine, self._partitions = engine, engine.partitions
        self._patterns: dict[tuple[Task[..., Any], str, str], Pattern] = {}
        batcher: Batcher[Submit, Any] = Batcher(
            self._create,
            first_send=partial(self._create, fresh=True),
            max_weight=_PER_STATEMENT,
        )
        self.request = batcher.request

    async def _create(self, submits: Sequence[Submit], *, fresh: bool = False) -> list[Creation]:
        executions = executions_of(submits, partitions=self._partitions)
        return await self._engine.create_execution(executions, fresh=fresh)

    def new(self, call: Call[Any], options: Options, *, namespace: str, creator: str) -> Submit:
        """What to send for the call; raises `ValidationError`."""
        task = call.task
        if options is not PLAIN or task.limit is not None or tracer() is not None:
            return self._made(call, options, namespace, creator)
        pattern = self._patterns.get((task, namespace, creator))
        if pattern is None:
            if len(self._patterns) >= _REMEMBERED:
                self._patterns.clear()
            pattern = Pattern(self._made(call, options, namespace, creator))
            self._patterns[task, namespace, creator] = pattern
        check_payload(call.payload)
        return PlainSubmit(pattern, call.payload)

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


def executions_of(submits: Sequence[Submit], *, partitions: int) -> Sequence[NewExecution]:
    """The executions to create; the same ones when it is called again.

    Plain ones that get their ids together share a partition, so that their rows are neighbours in
    the indexes.
    """
    plain = [each for each in submits if isinstance(each, PlainSubmit)]
    unsent = [each for each in plain if each.uuid is None]
    if unsent:
        uuids = new_uuids(len(unsent))
        shared = uuid_partition(uuids[0], partitions)
        for each, uuid in zip(unsent, uuids, strict=True):
            each.partition_key, each.uuid = shared, uuid
    if len(plain) == len(submits) and all(each.pattern is plain[0].pattern for each in plain):
        return AlikeBatch(
            plain[0].pattern,
            [each.partition_key for each in plain],
            [each.uuid for each in plain if each.uuid is not None],
            [each.payload for each in plain],
        )
    return [_execution(each) if isinstance(each, PlainSubmit) else each for each in submits]


def _execution(submit: PlainSubmit) -> NewExecution:
    assert submit.uuid is not None
    own = ExecutionId(submit.partition_key, submit.uuid)
    return submit.pattern.example.like(own, submit.payload)
