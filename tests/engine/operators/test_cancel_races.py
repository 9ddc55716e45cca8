"""A cancel beside what others do to the same execution: always one order or the other."""

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.cancel import Cancelled
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import ExecutionNotActive, ValidationError
from tests import given
from tests.engine.controls import Another, actions, waiting


async def test_two_cancels_at_once_are_told_once(
    db: Connection, another: Another, ff_engine: Engine
) -> None:
    lease = await given.claimed(db)
    operator = await another()
    async with operator.transaction():
        first = await cancel_execution(operator, lease.execution_id, reason="1", actor="alice")
        cancelling = await waiting(
            db, ff_engine.cancel_execution(lease.execution_id, reason="2", actor="bob")
        )

    assert first == Cancelled(execution_id=lease.execution_id)
    assert await cancelling == Cancelled(execution_id=lease.execution_id, repeated=True)
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("revoked", "cancelled"),
    ]
    assert await given.completion_events(db, lease.execution_id) == ["cancelled"]
    assert [told.actor for told in await actions(db, lease.execution_id)] == ["alice"]


async def test_a_cancel_through_the_engine_that_waited_for_a_completion_comes_too_late(
    db: Connection, another: Another, ff_engine: Engine
) -> None:
    lease = await given.claimed(db)
    holder = await another()
    async with holder.transaction():
        await complete(holder, [Completion(lease, b"done")])
        cancelling = await waiting(db, ff_engine.cancel_execution(lease.execution_id, reason="no"))

    with pytest.raises(ValidationError, match="completed"):
        await cancelling
    assert await given.completion_events(db, lease.execution_id) == ["success"]
    assert await actions(db) == []


async def test_a_completion_that_waited_for_a_cancel_is_refused(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    operator, holder = await another(), await another()
    async with operator.transaction():
        await cancel_execution(operator, lease.execution_id, reason="no")
        completing = await given.blocked(db, holder, complete(holder, [Completion(lease, b"")]))

    [refused] = await completing
    assert isinstance(refused, ExecutionNotActive)
    assert await given.completion_events(db, lease.execution_id) == ["cancelled"]


async def test_the_holder_learns_of_a_cancel_at_its_next_renewal(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    operator, holder = await another(), await another()
    async with operator.transaction():
        await cancel_execution(operator, lease.execution_id, reason="no")
        renewing = await given.blocked(db, holder, renew(holder, [lease], ttl=30))

    [refused] = await renewing
    assert isinstance(refused, ExecutionNotActive)
    assert (refused.lifecycle_phase, refused.terminal_outcome) == ("terminal", "cancelled")


async def test_a_cancel_that_waited_for_a_claim_takes_the_lease_away(
    db: Connection, another: Another, ff_engine: Engine
) -> None:
    execution_id = await given.created(db)
    worker = await another()
    async with worker.transaction():
        [task] = await claim(worker, given.WORKER, ttl=30)
        cancelling = await waiting(db, ff_engine.cancel_execution(execution_id, reason="no"))

    assert await cancelling == Cancelled(execution_id=execution_id)
    assert await given.lease_events(db, execution_id) == [
        ("acquired", None),
        ("revoked", "cancelled"),
    ]
    [refused] = await complete(db, [Completion(task.lease)])
    assert isinstance(refused, ExecutionNotActive)


async def test_a_claim_passes_over_what_is_being_cancelled(
    db: Connection, another: Another
) -> None:
    execution_id = await given.created(db)
    operator = await another()
    async with operator.transaction():
        await cancel_execution(operator, execution_id, reason="no")
        assert await claim(db, given.WORKER, ttl=30) == []

    assert await claim(db, given.WORKER, ttl=30) == []
