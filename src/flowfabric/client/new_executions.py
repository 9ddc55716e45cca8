"""The executions that a submit creates, from calls and the options of the submit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowfabric.app.check_call import check_call
from flowfabric.app.task import Call
from flowfabric.budgets import attach, budget_names
from flowfabric.client.options import Options
from flowfabric.engine.lifecycle.alike_batch import AlikeBatch, Pattern
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.ids import ExecutionId, key_partition, new_uuids, uuid_partition
from flowfabric.limits import check_limit_key, quota_key_id, quota_policy_id
from flowfabric.tracing import submit_span, with_traceparent


def new_executions(
    calls: Sequence[Call[Any]],
    options: Sequence[Options],
    *,
    namespace: str,
    creator: str,
    partitions: int,
    home: int | None = None,
) -> Sequence[NewExecution]:
    """The execution to create for each call: its options first, then the settings of its task.

    An execution that has a limit is in the partition of its key, unless it has an idempotency key.
    Executions without either share one partition, so that their rows are neighbours in the indexes;
    `home`, if it is given. Neighbours of one task with the same options differ in id and payload
    only: the other fields are checked once.

    Raises `ValidationError`.
    """
    uuids = new_uuids(len(calls))
    shared = uuid_partition(uuids[0], partitions) if home is None else home
    if len(calls) > 1 and _are_alike(calls, options):
        [example] = new_executions(
            calls[:1],
            options[:1],
            namespace=namespace,
            creator=creator,
            partitions=partitions,
            home=shared,
        )
        homes = [example.execution_id.partition_key] * len(calls)
        return AlikeBatch(Pattern(example), homes, uuids, [call.payload for call in calls])
    made: list[NewExecution] = []
    first: NewExecution | None = None
    task = given = limit_key = None
    home = None
    for call, each, uuid in zip(calls, options, uuids, strict=True):
        check_call(call)
        same = call.task is task and each is given and call.limit_key == limit_key
        if first is not None and home is not None and same:
            made.append(first.like(ExecutionId(home, uuid), call.payload))
            continue
        task, given, limit_key = call.task, each, call.limit_key
        home = shared
        own_key = each.key_for(task.kind)
        if own_key is not None:
            home = key_partition(namespace, own_key, partitions)
        elif task.limit is not None:
            key = each.limit_key if each.limit_key is not None else limit_key
            policy = quota_policy_id(namespace, task.limit.limit.name)
            home = (
                quota_key_id(policy, check_limit_key(key) if key is not None else "") % partitions
            )
        with submit_span(task.kind):
            first = _new_execution(ExecutionId(home, uuid), call, each, namespace, creator)
        made.append(first)
    return made


def _are_alike(calls: Sequence[Call[Any]], options: Sequence[Options]) -> bool:
    """Do the executions of these calls differ in id and payload only?"""
    for call in calls:
        check_call(call)
    task, limit_key, given = calls[0].task, calls[0].limit_key, options[0]
    return (
        given.key_for(task.kind) is None
        and all(each is given for each in options)
        and all(call.task is task and call.limit_key == limit_key for call in calls)
    )


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
        idempotency_key=options.key_for(task.kind),
        idempotency_window=options.idempotency_window,
        unique_until=None if options.unique is None else options.unique.until,
        on_conflict=options.on_conflict if options.unique is None else "return",
        tags=with_traceparent(options.tags),
        required_capabilities=task.requires,
        policy=attach(task.policy, budget_names(options.budget)),
        delay=options.delay,
        delay_until=options.delay_until,
        deadline=options.deadline,
        execution_deadline_at=options.deadline_at,
        quota_policy_id=None
        if task.limit is None
        else quota_policy_id(namespace, task.limit.limit.name),
        limit_key=call.limit_key if options.limit_key is None else options.limit_key,
    )
