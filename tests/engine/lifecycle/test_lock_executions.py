"""What is read under a lock was there when it was taken; events come in the order of locks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.db.steps import stepped
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.lock_executions import lock_and_read
from flowfabric.engine.lifecycle.lock_for_claim import lock_for_claim
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.ids import ExecutionId
from tests import given

Another = Callable[[], Awaitable[Connection]]

LOCKING: dict[str, Callable[[Connection, ExecutionId], Awaitable[object]]] = {
    "lifecycle.read_locked": lambda conn, which: lock_and_read(conn, [which]),
    "lifecycle.lock_for_claim": lock_for_claim,
}


@pytest.mark.parametrize("reads", LOCKING)
async def test_an_execution_that_is_created_after_the_lock_is_not_there(
    db: Connection, another: Another, reads: str
) -> None:
    second, new = await another(), given.new()

    async def create_first(_: Connection, statement: str) -> None:
        if statement == reads:
            await create_execution(db, [new])

    with stepped(create_first):
        async with second.transaction():
            found = await LOCKING[reads](second, new.execution_id)

    assert not found


async def test_a_renewal_that_an_end_waits_for_is_recorded_before_that_end(
    db: Connection, another: Another
) -> None:
    leases = sorted([await given.claimed(db) for _ in "ab"], key=lambda each: each.execution_id)
    first, second = await another(), await another()
    async with first.transaction():
        await first.execute(
            "SELECT FROM ff.lease WHERE execution_id = $1 FOR UPDATE", leases[0].execution_id.uuid
        )
        ending = complete(second, [Completion(lease, b"") for lease in leases])
        task = await given.blocked(db, second, ending)
        await renew(db, [leases[1]], ttl=60, record=True)
    await task

    assert await given.lease_events(db, leases[1].execution_id) == [
        ("acquired", None),
        ("renewed", None),
        ("revoked", "completed"),
    ]
