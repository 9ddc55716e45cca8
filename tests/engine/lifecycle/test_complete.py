"""active → terminal(success)."""

from datetime import timedelta

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.errors import ExecutionNotActive
from flowfabric.states import PublicState
from flowfabric.testing import Clock
from tests import given


async def test_a_held_execution_completes_with_its_result(db: Connection) -> None:
    lease = await given.claimed(db)

    [done] = await complete(db, [Completion(lease, b"42")])

    assert done == Completed(execution_id=lease.execution_id)
    assert await given.vector(db, lease.execution_id) == (
        "terminal",
        "not_applicable",
        "none",
        "success",
        "attempt_terminal",
        "completed",
    )
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("revoked", "completed"),
    ]
    assert await given.completion_events(db, lease.execution_id) == ["success"]
    [attempt] = await given.attempts(db, lease.execution_id)
    assert (attempt["outcome"], attempt["result"]) == ("success", b"42")


async def test_a_lease_that_expired_cannot_complete(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(timedelta(seconds=31))
    await expire_leases(db, limit=10)

    [refused] = await complete(db, [Completion(lease, b"late")])

    assert isinstance(refused, ExecutionNotActive)
    assert await given.public_state(db, lease.execution_id) is PublicState.WAITING
