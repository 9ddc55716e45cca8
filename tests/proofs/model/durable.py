"""Signals by name and entries of journals, in the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.engine.suspensions.signal_answers import SignalAccepted, SignalDuplicate
from flowfabric.errors import NotFound, TargetNotSignalable
from flowfabric.states import SignalEffect
from tests.proofs.model.moves import refusal
from tests.proofs.model.records import World
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
