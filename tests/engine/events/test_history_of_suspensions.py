"""The history of an execution that was suspended, resumed and signalled."""

from __future__ import annotations

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.operators.resume_execution import resume_execution
from flowfabric.engine.suspensions.send_signal import NewSignal, send_signal
from flowfabric.engine.suspensions.suspend import suspend
from flowfabric.engine.suspensions.suspension import SuspendRequest
from flowfabric.testing import Clock
from tests import given
from tests.engine.events.test_read_history import read_history
from tests.engine.executions.suspended import waiting_for_signal


async def test_suspensions_resumes_and_signals_are_told_in_order(
    db: Connection, clock: Clock
) -> None:
    """An operator's resume leaves no event beside the action; that of the signal is a later one."""
    execution = await waiting_for_signal(db)
    await clock.advance(1)
    async with db.transaction():
        await resume_execution(db, execution, actor="ann")
    await clock.advance(1)
    [task] = await claim(db, given.WORKER, ttl=30)
    await clock.advance(1)
    request = SuspendRequest(
        lease=task.lease, keeps_waitpoints=True, awaits_signals=("approved",), signals_read=0
    )
    async with db.transaction():
        await suspend(db, [request])
    for name in ("other", "approved"):
        await clock.advance(1)
        async with db.transaction():
            await send_signal(db, NewSignal(execution_id=execution, signal_name=name))
    [task] = await claim(db, given.WORKER, ttl=30)
    await complete(db, [Completion(task.lease)])

    entries = await read_history(db, execution)

    assert [(entry.outbox, entry.what, entry.reason) for entry in entries] == [
        ("execution", "submitted", None),
        ("lease", "acquired", None),
        ("lease", "released", "suspended"),
        ("operator", "resumed", None),
        ("lease", "acquired", None),
        ("lease", "released", "suspended"),
        ("signal", "buffered_in_inbox", None),
        ("signal", "resume_condition_satisfied", None),
        ("completion", "resumable", None),
        ("lease", "acquired", None),
        ("lease", "released", "completed"),
        ("completion", "success", None),
    ]
    assert [entry.details.get("signal_name") for entry in entries[6:8]] == ["other", "approved"]
