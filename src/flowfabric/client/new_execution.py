"""The execution that a submit creates, from a call and the options of the submit."""

from __future__ import annotations

from typing import Any

from flowfabric.app.check_call import check_call
from flowfabric.app.task import Call
from flowfabric.client.options import Options
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.ids import ExecutionId


def new_execution(
    call: Call[Any], options: Options, *, namespace: str, creator: str, partitions: int
) -> NewExecution:
    """The execution to create: options first, then the settings of the task.

    Raises `ValidationError`.
    """
    check_call(call)
    task = call.task
    return NewExecution(
        execution_id=ExecutionId.mint(
            namespace=namespace, idempotency_key=options.idempotency_key, partitions=partitions
        ),
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
        tags=options.tags,
        required_capabilities=task.requires,
        policy=task.policy,
        delay=options.delay,
        delay_until=options.delay_until,
        deadline=options.deadline,
        execution_deadline_at=options.deadline_at,
    )
