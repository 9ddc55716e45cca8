"""Whoever needs several executions locks them in ascending order, however they were given."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.states import TerminalOutcome
from tests import given
from tests.engine.lifecycle.fenced import OPERATIONS, Operation

Another = Callable[[], Awaitable[Connection]]

FREE = """
SELECT count(*) FROM (SELECT FROM ff.exec_core WHERE execution_id = $1
                         FOR NO KEY UPDATE SKIP LOCKED) AS free
"""


async def _terminalize(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    executions = [lease.execution_id for lease in leases]
    return list(await terminalize(db, executions, outcome=TerminalOutcome.CANCELLED))


async def _lock(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    await lock_executions(db, [lease.execution_id for lease in leases])
    return []


BATCHES: dict[str, Operation] = {
    **{name: operation for name, operation in OPERATIONS.items() if name != "progress"},
    "terminalize": _terminalize,
    "lock_executions": _lock,
}


@pytest.mark.parametrize("operation", BATCHES.values(), ids=BATCHES)
async def test_while_it_waits_for_the_first_it_holds_no_later_one(
    db: Connection, another: Another, operation: Operation
) -> None:
    for _ in range(3):
        await given.created(db)
    tasks = await claim(db, given.WORKER, ttl=30, limit=3)
    leases = sorted((task.lease for task in tasks), key=lambda lease: lease.execution_id)
    holder, caller = await another(), await another()

    async with holder.transaction():
        await lock_executions(holder, [leases[0].execution_id])
        call = await given.blocked(db, caller, operation(caller, leases[::-1]))
        free = [await db.fetchval(FREE, lease.execution_id.uuid) for lease in leases]

    await call
    assert free == [0, 1, 1]
