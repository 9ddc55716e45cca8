"""Signals by name and entries of journals, in the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowfabric.engine.journal.delay_with_entries import Sleeper
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.journal.restart_execution import RestartedExecution
from flowfabric.engine.lifecycle.delay import Delayed
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.engine.suspensions.signal_answers import SignalAccepted, SignalDuplicate
from flowfabric.errors import NotFound, TargetNotSignalable
from flowfabric.instants import epoch_ms
from flowfabric.states import SignalEffect
from tests.proofs.model.moves import delay, refusal
from tests.proofs.model.records import Execution, World
from tests.proofs.model.wait_records import Entry, Inbox
from tests.proofs.model.waits import resume


def send_signal(world: World, signal: NewSignal) -> Any:
    """Every execution that has not ended takes signals, once for each key."""
    each = world.executions.get(signal.execution_id)
    if each is None:
        return NotFound("execution", signal.execution_id)
    if each.lifecycle_phase == "terminal":
        return TargetNotSignalable(each.execution_id, each.public_state)
    for sent in each.signals:
        if signal.idempotency_key is not None and sent.idempotency_key == signal.idempotency_key:
            return SignalDuplicate(existing_signal_id=sent.signal_id)
    each.signal_seq += 1
    each.signals = [
        *each.signals,
        Inbox(signal.signal_id, signal.signal_name, signal.idempotency_key, world.now_ms),
    ]
    effect = SignalEffect.BUFFERED_IN_INBOX
    suspension = each.suspension
    awaited = () if suspension is None else suspension.awaits
    if each.lifecycle_phase == "suspended" and suspension and signal.signal_name in awaited:
        effect = SignalEffect.RESUME_CONDITION_SATISFIED
        resume(world, each, suspension.delay_ms, [])
    return SignalAccepted(signal_id=signal.signal_id, effect=effect)


def record_entries(world: World, writes: Sequence[EntryWrite]) -> list[Any]:
    """The refusal of each write, or None; an entry that is there stays as it is."""
    answers = [refusal(world, write.lease) for write in writes]
    for write, refused in zip(writes, answers, strict=True):
        if refused is None:
            each = world.executions[write.lease.execution_id]
            entry = Entry(write.name, write.lease.attempt_index, world.now_ms, write.value or b"")
            each.entries = {write.seq: entry, **each.entries}
    return answers


def sleep(world: World, sleeper: Sleeper) -> Any:
    """The execution is delayed and its sleep recorded, or neither."""
    answer = delay(world, sleeper.request)
    if isinstance(answer, Delayed):
        each = world.executions[sleeper.request.lease.execution_id]
        each.blocking_detail = sleeper.request.detail
        for write in sleeper.entries:
            assert write.due_at is not None
            slept = Entry(
                write.name, write.lease.attempt_index, world.now_ms, None, epoch_ms(write.due_at)
            )
            each.entries = {**each.entries, write.seq: slept}
    return answer


def restart_execution(world: World, held: Lease, payload: bytes) -> Any:
    """The handler begins anew: other arguments, an empty journal, no open waitpoints."""
    each = world.executions.get(held.execution_id)
    refused = refusal(world, held)
    if each is not None and refused is not None and _restarted_by(each, held):
        return RestartedExecution(
            execution_id=each.execution_id, generation=each.generation, repeated=True
        )
    if each is None or refused is not None:
        return refused
    world.relinquish(each, attempt_state="pending_first_attempt")
    each.attempt_index += 1
    each.retry_count = each.lease_reclaim_count = 0
    each.generation += 1
    each.payload = payload
    mark = b'{"generation":%d}' % each.generation
    each.entries = {0: Entry("mark", held.attempt_index, world.now_ms, mark)}
    for waitpoint in each.waitpoints.values():
        waitpoint.close(world.now_ms, "restarted")
    return RestartedExecution(execution_id=each.execution_id, generation=each.generation)


def _restarted_by(seen: Execution, held: Lease) -> bool:
    """Is it a repeated call of the holder, before anybody else has claimed?"""
    return (
        (seen.attempt_index, seen.lease_epoch, seen.lease_id)
        == (held.attempt_index + 1, held.lease_epoch, held.lease_id)
        and seen.lifecycle_phase == "runnable"
        and seen.attempt_state == "pending_first_attempt"
    )
