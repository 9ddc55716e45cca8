"""Compensations: calls that run if the execution ends otherwise than by success."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from flowfabric.engine.journal.compensation import CompensationCall
from flowfabric.limits import refuse_merged
from flowfabric.states import JournalKind, JournalState

if TYPE_CHECKING:
    from flowfabric.worker.child_batch import ChildCall
    from flowfabric.worker.durable.durable import Durable
    from flowfabric.worker.durable.keys import EntryKey


async def compensate(durable: Durable, key: EntryKey, call: ChildCall[Any]) -> None:
    """The call is armed, once however often the handler runs."""
    journal, engine = durable.journal, durable.services.engine
    durable.attempt.compensates = True
    if journal.find(key, JournalKind.COMPENSATION) is not None:
        return
    await durable.frontier(key)
    await durable.flush()
    task = call.task
    refuse_merged(task.merged, task.kind, "a compensation")
    armed = CompensationCall(
        execution_kind=task.kind,
        payload=call.payload,
        payload_encoding=task.encoding,
        lane_id=task.lane,
        priority=task.priority,
        required_capabilities=task.requires,
        policy=None if task.policy is None else msgspec.json.decode(task.policy.as_json()),
        quota_policy_id=None if task.limit is None else task.limit.limit.quota_policy_id,
        limit_key=call.limit_key,
    )
    write = journal.entry(key, JournalKind.COMPENSATION, JournalState.DONE)
    await durable.fenced(lambda: engine.arm_compensation(write, armed))


async def disarm(durable: Durable, key: EntryKey) -> None:
    """Nothing that was armed before runs any more."""
    journal, engine = durable.journal, durable.services.engine
    if journal.find(key, JournalKind.COMPENSATION) is not None:
        return
    await durable.frontier(key)
    await durable.flush()
    write = journal.entry(key, JournalKind.COMPENSATION, JournalState.DONE)
    await durable.fenced(lambda: engine.disarm_compensations(write))
