"""The executions that a submit creates, from calls and the options of the submit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowfabric.app.check_call import check_call
from flowfabric.app.task import Call
from flowfabric.client.options import Options
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.ids import ExecutionId, key_partition, new_uuids, uuid_partition
from flowfabric.tracing import submit_span, with_traceparent


def new_executions(
    calls: Sequence[Call[Any]],
    options: Sequence[Options],
    *,
    namespace: str,
    creator: str,
    partitions: int,
) -> list[NewExecution]:
    """The execution to create for each call: its options first, then the settings of its task.

    Executions without an idempotency key share one partition, so that their rows are neighbours in
    the indexes. Neighbours of one task with the same options differ in id and payload only: the
    other fields are checked once.

    Raises `ValidationError`.
    """
    made: list[NewExecution] = []
    uuids = new_uuids(len(calls))
    shared = uuid_partition(uuids[0], partitions)
    first: NewExecution | None = None
    task = given = home = None
    for call, each, uuid in zip(calls, options, uuids, strict=True):
        check_call(call)
        if first is not None and home is not None and call.task is task and each is given:
            made.append(first.like(ExecutionId(home, uuid), call.payload))
            continue
        task, given = call.task, each
        home = shared
        if each.idempotency_key is not None:
            home = key_partition(namespace, each.idempotency_key, partitions)
        with submit_span(task.kind):
            first = _new_execution(ExecutionId(home, uuid), call, each, namespace, creator)
        made.append(first)
    return made


def _new_execution(
    execution_id: ExecutionId, call: Call[Any], options: Options, namespace: str, creator: str
) -> NewExecution:
    task = call.task
    return NewExecution(
        execution_id=execution_id,
        execution_kind=task.kind,
        lane_id=task.lane if options.lane is None else options.lane,
        namespace=namespace,
        input_payload=call.payload,
        payload_encoding=task.encoding,
        priority=task.priority if options.priority is None else options.priority,
        creator_identity=creator,
        idempotency_key=options.idempotency_key,
        idempotency_window=options.idempotency_window,
        on_conflict=options.on_conflict,
        tags=with_traceparent(options.tags),
        required_capabilities=task.requires,
        policy=task.policy,
        delay=options.delay,
        delay_until=options.delay_until,
        deadline=options.deadline,
        execution_deadline_at=options.deadline_at,
    )
