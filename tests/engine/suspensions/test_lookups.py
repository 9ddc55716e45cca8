"""Suspensions, waitpoints and inboxes are looked up by key, also if ANALYZE found them empty."""

from collections.abc import Awaitable, Callable, Sequence

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.resume_waiting import resume_waiting
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.engine.operators.resume_execution import resume_executions
from flowfabric.engine.suspensions.apply_timeouts import apply_timeouts
from flowfabric.engine.suspensions.expire_suspensions import still_due
from flowfabric.engine.suspensions.read_inbox import read_inbox
from flowfabric.engine.suspensions.send_signal import NewSignal, send_signals
from flowfabric.engine.suspensions.suspend import suspend
from flowfabric.ids import ExecutionId, new_uuid
from flowfabric.instants import instant
from flowfabric.states import TerminalOutcome
from flowfabric.testing import Clock
from tests import given
from tests.engine.suspensions import parked
from tests.engine.suspensions.parked import ask, suspend_all

pytestmark = pytest.mark.usefixtures("new_database")

MANY, BATCH = 300, 20
FETCHED = """
SELECT relname, idx_tup_fetch + seq_tup_read AS fetched FROM pg_stat_xact_user_tables
 WHERE schemaname = 'ff' AND relname = ANY ($1)
"""
TABLES = [
    "exec_core",
    "exec_body",
    "lease",
    "suspension_current",
    "waitpoint_pending",
    "suspend_dedup",
    "signal_inbox",
    "journal",
]


async def fetched(db: Connection) -> dict[str, int]:
    return {row["relname"]: row["fetched"] for row in await db.fetch(FETCHED, TABLES)}


@pytest.fixture
async def suspended(db: Connection, clock: Clock) -> list[ExecutionId]:
    """Many that wait for a signal on a waitpoint, in tables that were analyzed when empty."""
    await parked.keyed(db)
    await filled(db, clock)
    await db.execute(f"DELETE FROM ff.{'; DELETE FROM ff.'.join([*TABLES, 'ready'])}")
    await db.execute("ANALYZE")
    return await filled(db, clock)


async def filled(db: Connection, clock: Clock) -> list[ExecutionId]:
    await create_execution(db, [given.new() for _ in range(MANY)])
    leases = [task.lease for task in await claim(db, given.WORKER, ttl=600, limit=MANY)]
    requests = [
        ask(each, idempotency_key="k", timeout_at=instant(await clock.now_ms() + 1000 + place))
        for place, each in enumerate(leases)
    ]
    await suspend_all(db, list(requests))
    ids = [each.execution_id for each in leases]
    async with db.transaction():
        await send_signals(db, [NewSignal(execution_id=each, signal_name="go") for each in ids])
    return ids


Some = Sequence[ExecutionId]


async def _signal(db: Connection, some: Some) -> None:
    await db.execute("UPDATE ff.suspension_current SET awaits_signals = '{go}'")
    async with db.transaction():
        before = await fetched(db)
        await send_signals(
            db,
            [NewSignal(execution_id=each, signal_name="go", idempotency_key="k") for each in some],
        )
        check(before, await fetched(db))


async def _wake(db: Connection, some: Some) -> None:
    group = new_uuid()
    await db.execute("UPDATE ff.suspension_current SET awaits_joins = ARRAY[$1::uuid]", group)
    async with db.transaction():
        before = await fetched(db)
        await lock_executions(db, some)
        assert len(await resume_waiting(db, [(each, group) for each in some])) == BATCH
        check(before, await fetched(db))


async def _resume(db: Connection, some: Some) -> None:
    async with db.transaction():
        before = await fetched(db)
        await resume_executions(db, some)
        check(before, await fetched(db))


async def _end(db: Connection, some: Some) -> None:
    async with db.transaction():
        before = await fetched(db)
        await lock_executions(db, some)
        await terminalize(db, some, outcome=TerminalOutcome.CANCELLED)
        check(before, await fetched(db))


async def _time_out(db: Connection, some: Some) -> None:
    await db.execute("UPDATE ff_testing.clock SET now_ms = now_ms + 100000")
    async with db.transaction():
        before = await fetched(db)
        await lock_executions(db, some)
        await apply_timeouts(db, await still_due(db, some))
        check(before, await fetched(db))


async def _read(db: Connection, some: Some) -> None:
    async with db.transaction():
        before = await fetched(db)
        assert len(await read_inbox(db, some)) == BATCH
        check(before, await fetched(db))


async def _suspend_again(db: Connection, some: Some) -> None:
    async with db.transaction():
        await resume_executions(db, some)
    leases = [task.lease for task in await claim(db, given.WORKER, ttl=600, limit=BATCH)]
    async with db.transaction():
        before = await fetched(db)
        await suspend(db, [ask(lease, idempotency_key="k2") for lease in leases])
        check(before, await fetched(db))


def check(before: dict[str, int], after: dict[str, int]) -> None:
    read = {name: after[name] - before.get(name, 0) for name in after}
    assert max(read.values()) <= 10 * BATCH, read


@pytest.mark.parametrize("call", [_signal, _wake, _resume, _end, _time_out, _read, _suspend_again])
async def test_a_batch_reads_its_own_rows(
    db: Connection,
    suspended: list[ExecutionId],
    call: Callable[[Connection, Some], Awaitable[None]],
) -> None:
    await call(db, suspended[:BATCH])
