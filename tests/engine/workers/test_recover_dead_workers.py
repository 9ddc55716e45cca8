"""Workers whose session has ended: their leases do not wait for their expiry."""

import logging
from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.explain_execution import explain_execution
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.workers.heartbeat_worker import WorkerNotRegistered, heartbeat_worker
from flowfabric.engine.workers.hold_worker_lock import WorkerLock, hold_worker_lock
from flowfabric.engine.workers.list_worker_events import list_worker_events
from flowfabric.engine.workers.recover_dead_workers import (
    APART_MS,
    dead_workers_due,
    recover_dead_workers,
)
from flowfabric.engine.workers.register_worker import register_worker
from flowfabric.errors import ExecutionNotActive
from flowfabric.policy import ExecutionPolicy
from flowfabric.testing import Clock
from tests import given
from tests.db.facts import server_is_settled
from tests.worker.facts import eventually

pytestmark = pytest.mark.session("a lock is held by a session")

Another = Callable[[], Awaitable[Connection]]
APART = APART_MS / 1000
HELD = WorkerLock(held=True, registered=True, shared=False)


@pytest.fixture(autouse=True)
async def sessions_count(db: Connection) -> None:
    """Right after a start of the server they do not."""
    await server_is_settled(db)


async def register(db: Connection, *, namespace: str = "default") -> None:
    await register_worker(
        db,
        worker_id="w",
        worker_instance_id="w-1",
        lanes=["default"],
        liveness_ttl=30,
        namespace=namespace,
    )


async def session_of_w1(db: Connection, another: Another) -> Connection:
    """A session that holds the lock of w-1, which is registered."""
    await register(db)
    session = await another()
    assert await hold_worker_lock(session, "w-1") == HELD
    return session


async def ended(db: Connection, session: Connection) -> None:
    """The session has ended, and the server knows."""
    pid = session.get_server_pid()
    session.terminate()

    async def is_gone() -> bool:
        return not await db.fetchval("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid)

    await eventually(is_gone)


async def sweep(db: Connection) -> int:
    """One run of the sweep."""
    if not await dead_workers_due(db):
        return 0
    async with db.transaction():
        return await recover_dead_workers(db, 100)


async def test_a_lease_whose_worker_is_gone_is_requeued_by_the_second_look(
    db: Connection, another: Another, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    lease = await given.claimed(db, ttl=30)
    session = await session_of_w1(db, another)
    assert await sweep(db) == 0
    await ended(db, session)

    looks = [await sweep(db), await sweep(db)]
    await clock.advance(APART - 0.001)
    looks.append(await sweep(db))
    assert looks == [1, 0, 0]  # it is noted once, and that is all
    assert await given.lease_events(db, lease.execution_id) == [("acquired", None)]
    await clock.advance(0.001)
    with caplog.at_level(logging.WARNING):
        assert await sweep(db) == 2  # the lease, and the worker

    assert (await given.row(db, lease.execution_id))["lease_epoch"] == lease.lease_epoch + 1
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("expired", "disconnected"),
    ]
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt["outcome"] == "lease_expired_reclaimable"
    assert "worker w-1 is void: the session of the worker has ended" in caplog.text
    [refused] = await complete(db, [Completion(lease, b"late")])
    assert isinstance(refused, ExecutionNotActive)
    assert await sweep(db) == 0
    [event, _] = await list_worker_events(db, "default")
    assert (event.event_kind, event.reason) == ("marked_dead", "disconnected")
    explained = await explain_execution(db, lease.execution_id)
    assert [reason.why for reason in explained.reasons] == ["no_worker"]
    [again] = await claim(db, given.OTHER, ttl=30)
    stored = await given.row(db, lease.execution_id)
    assert (again.lease.attempt_index, stored["lease_reclaim_count"]) == (0, 1)


async def test_what_kills_its_workers_too_often_fails(
    db: Connection, another: Another, clock: Clock
) -> None:
    lease = await given.claimed(db, ttl=30, policy=ExecutionPolicy(max_reclaim_count=0))
    await ended(db, await session_of_w1(db, another))
    await sweep(db)
    await clock.advance(APART)

    assert await sweep(db) == 2

    assert (await given.row(db, lease.execution_id))["failure_reason"] == "max_reclaims_exceeded"
    assert await given.completion_events(db, lease.execution_id) == ["failed"]


async def without_a_lock(db: Connection, another: Another) -> None:
    """Registered, as a worker behind a pooler or one on another machine that speaks HTTP."""
    await register(db)


async def unregistered(db: Connection, another: Another) -> None:
    """It claims through the engine, and that is all."""


async def restarted_without_a_lock(db: Connection, another: Another) -> None:
    """A process of the same name had a lock, and this one has none."""
    await ended(db, await session_of_w1(db, another))
    await register(db)


async def namesake_in_another_namespace(db: Connection, another: Another) -> None:
    """The namesake is dead."""
    await register(db)
    await register(db, namespace="acme")
    session = await another()
    await hold_worker_lock(session, "w-1", namespace="acme")
    await ended(db, session)


async def connected_twice(db: Connection, another: Another) -> None:
    """The server has not noticed yet that the first of two sessions is dead; then it does."""
    first = await session_of_w1(db, another)
    assert (await hold_worker_lock(await another(), "w-1")).shared
    await ended(db, first)


@pytest.mark.parametrize(
    "worker",
    [
        without_a_lock,
        unregistered,
        restarted_without_a_lock,
        namesake_in_another_namespace,
        connected_twice,
    ],
)
async def test_the_leases_of_any_other_worker_last_until_they_expire(
    db: Connection,
    another: Another,
    clock: Clock,
    worker: Callable[[Connection, Another], Awaitable[None]],
) -> None:
    lease = await given.claimed(db, ttl=30)
    await worker(db, another)

    for _ in range(5):
        await sweep(db)
        await clock.advance(APART)

    assert await given.lease_events(db, lease.execution_id) == [("acquired", None)]


async def test_a_worker_that_reconnects_between_two_looks_keeps_its_leases(
    db: Connection, another: Another, clock: Clock
) -> None:
    lease = await given.claimed(db, ttl=30)
    session = await session_of_w1(db, another)
    for _ in range(3):  # each time for the first time
        await ended(db, session)
        assert await sweep(db) == 1
        session = await another()
        assert await hold_worker_lock(session, "w-1") == HELD
        await clock.advance(APART)
    assert await sweep(db) == 0
    await ended(db, session)

    assert await sweep(db) == 1

    assert await given.lease_events(db, lease.execution_id) == [("acquired", None)]


async def test_a_worker_that_was_taken_for_dead_registers_again(
    db: Connection, another: Another, clock: Clock
) -> None:
    await ended(db, await session_of_w1(db, another))
    await sweep(db)
    await clock.advance(APART)
    assert await sweep(db) == 1

    session = await another()

    lock = await hold_worker_lock(session, "w-1")
    assert lock == WorkerLock(held=True, registered=False, shared=False)
    assert isinstance(await heartbeat_worker(session, "w-1"), WorkerNotRegistered)
    await register(db)
    assert (await hold_worker_lock(session, "w-1")).registered


async def test_a_lease_in_use_is_left_to_the_next_run(
    db: Connection, another: Another, clock: Clock
) -> None:
    lease = await given.claimed(db, ttl=30)
    await ended(db, await session_of_w1(db, another))
    await sweep(db)
    await clock.advance(APART)
    other = await another()
    async with other.transaction():
        await other.execute("SELECT FROM ff.exec_core FOR NO KEY UPDATE")
        assert await sweep(db) == 0  # and the worker stays registered for it

    assert await sweep(db) == 2

    assert len(await given.lease_events(db, lease.execution_id)) == 2
