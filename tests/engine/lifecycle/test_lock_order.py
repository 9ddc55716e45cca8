"""An operation on several executions locks them in ascending order, however they were given."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import product
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.release_after_trouble import (
    MAX_RELEASES,
    Trouble,
    release_after_trouble,
)
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.states import TerminalOutcome
from tests import given
from tests.engine.lifecycle.fenced import OPERATIONS, Operation

Another = Callable[[], Awaitable[Connection]]

TABLES = ("exec_core", "lease")
LOCK = "SELECT FROM ff.{table} WHERE execution_id = $1 FOR NO KEY UPDATE"
FREE = """
SELECT count(*) FROM (SELECT FROM ff.{table} WHERE execution_id = $1
                         FOR NO KEY UPDATE SKIP LOCKED) AS free
"""


async def _terminalize(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    executions = [lease.execution_id for lease in leases]
    async with db.transaction():
        await lock_executions(db, executions)
        return list(await terminalize(db, executions, outcome=TerminalOutcome.CANCELLED))


async def _fail_variously(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    """The first by id is retried, the others end."""
    first = min(leases, key=lambda lease: lease.execution_id)
    return await fail(
        db,
        [
            Failure(
                lease=lease, reason="boom", category="transient" if lease == first else "permanent"
            )
            for lease in leases
        ],
    )


async def _trouble(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    """The first by id is released, the others end: they were released too often."""
    first = min(leases, key=lambda lease: lease.execution_id)
    await db.execute(
        "UPDATE ff.exec_core SET infra_release_count = $1 WHERE execution_id <> $2",
        MAX_RELEASES,
        first.execution_id.uuid,
    )
    return await release_after_trouble(db, [Trouble(lease=each, reason="x") for each in leases])


async def _lock(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    async with db.transaction():
        await lock_executions(db, [lease.execution_id for lease in leases], with_leases=True)
    return []


BATCHES: dict[str, Operation] = {
    **{name: operation for name, operation in OPERATIONS.items() if name != "progress"},
    "terminalize": _terminalize,
    "lock_executions": _lock,
    "fail_variously": _fail_variously,
    "release_after_trouble": _trouble,
}


# A renewal locks nothing but leases.
CASES = sorted({*product(BATCHES, TABLES)} - {("renew", "exec_core")})


@pytest.mark.parametrize(("name", "table"), CASES)
async def test_while_it_waits_for_the_first_it_holds_no_later_one(
    db: Connection, another: Another, name: str, table: str
) -> None:
    for _ in range(3):
        await given.created(db, policy=given.retrying())
    tasks = await claim(db, given.WORKER, ttl=30, limit=3)
    leases = sorted((task.lease for task in tasks), key=lambda lease: lease.execution_id)
    holder, caller = await another(), await another()

    async with holder.transaction():
        await holder.execute(LOCK.format(table=table), leases[0].execution_id.uuid)
        call = await given.blocked(db, caller, BATCHES[name](caller, leases[::-1]))
        free = [
            await db.fetchval(FREE.format(table=table), lease.execution_id.uuid) for lease in leases
        ]

    await call
    assert free == [0, 1, 1]
