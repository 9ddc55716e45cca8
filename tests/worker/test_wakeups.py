"""How a worker learns of work and of lost leases, and how its outcomes travel: quickly."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric import App, Client, Ctx, Flow
from flowfabric.client.open_engine import on_database
from flowfabric.db.rows import Connection
from flowfabric.db.transaction import transact
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.operators.cancel_execution import cancel_execution, cancel_executions
from flowfabric.engine.operators.override_complete import override_complete
from flowfabric.engine.operators.override_delay import override_delay
from flowfabric.engine.operators.override_fail import override_fail
from flowfabric.engine.operators.revoke_lease import revoke_lease
from flowfabric.ids import ExecutionId
from flowfabric.worker import renewals
from tests.worker.facts import (
    count,
    database_time,
    eventually,
    has_asked,
    is_idle,
    outcome_transactions,
)

pytestmark = pytest.mark.timeout(40)


async def delays_to_start(client: Client, app: App, samples: int) -> list[float]:
    """How long each of several executions, submitted one by one, waits for its handler."""
    starts: asyncio.Queue[float] = asyncio.Queue()

    @app.middleware
    async def note(ctx: Ctx, call_next: object) -> None:
        starts.put_nowait(time.monotonic())

    delays = []
    for _ in range(samples):
        submitted = time.monotonic()
        await client.submit(app.tasks["job"].call())
        delays.append(await asyncio.wait_for(starts.get(), 10) - submitted)
    return delays


def idle_app() -> App:
    app = App()

    @app.task("job")
    async def job(ctx: Ctx) -> None: ...

    return app


@pytest.mark.timing
@pytest.mark.session("begins when a process is registered for notifications")
async def test_a_notification_wakes_an_idle_worker_long_before_its_next_poll(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = idle_app()

    async with app.worker(dsn=ff_dsn):
        await eventually(lambda: is_idle(db))
        delays = await delays_to_start(client, app, 9)

    assert statistics.median(delays) < 0.25  # it polls every three seconds


@pytest.mark.timing
@pytest.mark.session("begins when a process is registered for notifications")
async def test_work_that_became_due_wakes_an_idle_worker(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = idle_app()

    async with app.worker(dsn=ff_dsn):
        await eventually(lambda: is_idle(db))
        began = time.monotonic()
        handle = await client.submit(app.tasks["job"].call(), delay=0.3)
        await handle.result(timeout=10)

    assert 0.3 <= time.monotonic() - began < 2.5  # due, promoted every 0.75 s, and woken


Another = Callable[[], Awaitable[Connection]]


@pytest.mark.timing
async def test_what_was_locked_for_a_moment_is_claimed_long_before_the_next_poll(
    client: Client, ff_dsn: str, db: Connection, another: Another
) -> None:
    app, other = idle_app(), await another()
    handle = await client.submit(app.tasks["job"].call())

    async with other.transaction():
        await other.execute("SELECT FROM ff.ready FOR UPDATE")
        since = await database_time(db)
        worker = app.worker(dsn=ff_dsn)
        await worker.__aenter__()
        await eventually(lambda: has_asked(db, "executions.count_claimable", since))
    unlocked = time.monotonic()
    try:
        await handle.result(timeout=10)
        assert time.monotonic() - unlocked < 1.0  # it polls every three seconds
    finally:
        await worker.__aexit__()


async def test_a_worker_that_runs_until_idle_waits_for_what_is_locked(
    client: Client, ff_dsn: str, db: Connection, another: Another
) -> None:
    app, other = idle_app(), await another()
    handle = await client.submit(app.tasks["job"].call())

    async with other.transaction():
        await other.execute("SELECT FROM ff.ready FOR UPDATE")
        since = await database_time(db)
        running = asyncio.create_task(app.worker(dsn=ff_dsn).run_until_idle())
        await eventually(
            lambda: running.done() or has_asked(db, "executions.count_claimable", since)
        )
    await running

    assert await handle.result(timeout=1) is None


@pytest.mark.timing
@pytest.mark.parametrize("settings", [{"listen": False}, {"pooler": True}], ids=str)
async def test_without_notifications_a_worker_polls(
    client: Client, ff_dsn: str, db: Connection, settings: dict[str, Any]
) -> None:
    app = idle_app()

    async with app.worker(dsn=ff_dsn, **settings):
        delays = await delays_to_start(client, app, 3)
        listeners = await db.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'flowfabric listener'"
            " AND datname = current_database() AND query LIKE 'LISTEN%'"
        )

    assert max(delays) < 1.5  # the longest pause between two looks is a second
    assert listeners == 0
    assert not await is_idle(db)


@pytest.mark.session("begins when a process is registered for notifications")
@pytest.mark.direct("the server is registered in its place")
async def test_a_worker_that_is_busy_is_deregistered(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()

    @app.task("nap")
    async def nap(ctx: Ctx) -> None:
        await asyncio.sleep(0.02)

    async def is_busy() -> bool:
        return not await is_idle(db) and await count(db, "completed") > 0

    async with app.worker(dsn=ff_dsn, concurrency=2):
        await eventually(lambda: is_idle(db))
        await client.submit_many([nap.call() for _ in range(100)])
        await eventually(is_busy)


async def test_outcomes_of_many_executions_are_recorded_in_few_transactions(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()

    @app.task("quick")
    async def quick(ctx: Ctx, number: int) -> int:
        if number % 10 == 0:
            raise RuntimeError("tenth")
        return number

    async def all_ended() -> bool:
        return await db.fetchval("SELECT count(*) FROM ff.completion_event") == 1000

    await client.submit_many(quick.many(range(1000)))
    async with app.worker(dsn=ff_dsn, concurrency=64):
        await eventually(all_ended, within=20)

    assert (await count(db, "completed"), await count(db, "failed")) == (900, 100)
    assert await outcome_transactions(db) < 150


@pytest.mark.timing
@pytest.mark.session("begins when a process is registered for notifications")
async def test_a_single_outcome_does_not_wait_for_company(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = idle_app()

    async with app.worker(dsn=ff_dsn):
        await eventually(lambda: is_idle(db))
        took = []
        for _ in range(7):
            began = time.monotonic()
            await (await client.submit(app.tasks["job"].call())).result(timeout=10)
            took.append(time.monotonic() - began)

    assert statistics.median(took) < 0.3


# Handlers whose lease is ended by a decision.

A_MINUTE = 60.0
"""A TTL after a third of which no test looks: whatever stops a handler is no renewal."""


class Running:
    """Handlers that run until they are cancelled, and which of them were when."""

    def __init__(self) -> None:
        self.app = App()
        self.started: set[ExecutionId] = set()
        self.stopped: dict[ExecutionId, float] = {}

        @self.app.task("long", timeout=3600)
        async def long(ctx: Ctx) -> None:
            if ctx.execution_id in self.started:
                return  # what was taken away may be claimed again
            self.started.add(ctx.execution_id)
            try:
                await asyncio.sleep(3600)
            finally:
                self.stopped[ctx.execution_id] = time.monotonic()

        self.task = long

    async def submitted(self, client: Client, db: Connection, number: int) -> list[ExecutionId]:
        """So many executions that run, on a worker that is registered for notifications."""
        handles = await client.submit_many([self.task.call() for _ in range(number)])
        await eventually(lambda: len(self.started) == number)
        await eventually(lambda: is_watching(db))
        return [handle.execution_id for handle in handles]


async def is_watching(db: Connection) -> bool:
    """Is a worker registered for decisions about its leases?"""
    return await db.fetchval("SELECT EXISTS (SELECT FROM ff.waiter WHERE topic LIKE 'worker:%')")


async def make_overdue(db: Connection, execution_id: ExecutionId, table: str, column: str) -> None:
    """One of the instants of the execution, or of its lease, is long past."""
    await db.execute(
        f"UPDATE ff.{table} SET {column} = 1 WHERE execution_id = $1", execution_id.uuid
    )


async def deadline_passes(db: Connection, execution_id: ExecutionId) -> None:
    await make_overdue(db, execution_id, "exec_core", "deadline_at_ms")
    async with db.transaction():
        await expire_executions(db, 10)


async def attempt_times_out(db: Connection, execution_id: ExecutionId) -> None:
    await make_overdue(db, execution_id, "lease", "attempt_timeout_at_ms")
    await expire_attempts(db, 10)


async def lease_expires(db: Connection, execution_id: ExecutionId) -> None:
    await make_overdue(db, execution_id, "lease", "lease_expires_at_ms")
    await expire_leases(db, 10)


DECISIONS: dict[str, Callable[[Connection, ExecutionId], Awaitable[object]]] = {
    "cancelled": lambda db, which: cancel_execution(db, which, reason="no"),
    "revoked": lambda db, which: revoke_lease(db, which, reason="no"),
    "completed": lambda db, which: override_complete(db, which, reason="done by hand"),
    "failed": lambda db, which: override_fail(db, which, reason="no"),
    "delayed": lambda db, which: override_delay(db, which, delay=3600),
    "deadline": deadline_passes,
    "timeout": attempt_times_out,
    "lease expired": lease_expires,
}


@pytest.mark.session("begins when a worker is registered for notifications")
async def test_whatever_another_process_decides_a_handler_learns_long_before_the_next_renewal(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    running = Running()

    async with running.app.worker(dsn=ff_dsn, lease_ttl=A_MINUTE, reconcile=False, drain=0):
        executions = await running.submitted(client, db, len(DECISIONS))
        for decide, execution_id in zip(DECISIONS.values(), executions, strict=True):
            async with db.transaction():
                await decide(db, execution_id)
        await eventually(lambda: len(running.stopped) == len(DECISIONS))


@pytest.mark.parametrize("decision", ["control", "flow", "sweep", "claimed again"])
@pytest.mark.direct("sweeps by its pool")
async def test_without_notifications_a_decision_of_the_same_process_stops_a_handler(
    client: Client, ff_dsn: str, db: Connection, decision: str
) -> None:
    running, flow = Running(), Flow("pair")
    flow.add(running.task.call(), name="member")

    async with running.app.worker(
        dsn=ff_dsn, lease_ttl=A_MINUTE, reconcile=False, drain=0, listen=False
    ):
        handle = await client.start(flow)
        await eventually(lambda: running.started)
        [execution_id] = running.started
        if decision == "control":
            await client.cancel(execution_id, "no")
        elif decision == "flow":
            await handle.cancel("no")
        elif decision == "claimed again":  # by this worker, after another process revoked it
            async with db.transaction():
                await revoke_lease(db, execution_id, reason="no")
        else:
            await make_overdue(db, execution_id, "exec_core", "deadline_at_ms")
            await transact(
                on_database(client.engine).pool, "sweep", lambda conn: expire_executions(conn, 10)
            )
        await eventually(lambda: running.stopped)


@pytest.mark.session("begins when a worker is registered for notifications")
@pytest.mark.direct("counts statements")
async def test_many_cancellations_are_found_by_few_looks(
    client: Client, ff_dsn: str, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, looks, number = Running(), list[float](), 200
    find_lost_leases = renewals.find_lost_leases

    async def noted(*args: Any) -> Any:
        looks.append(time.monotonic())
        return await find_lost_leases(*args)

    monkeypatch.setattr(renewals, "find_lost_leases", noted)
    async with running.app.worker(dsn=ff_dsn, lease_ttl=A_MINUTE, concurrency=number, drain=0):
        executions = await running.submitted(client, db, number)
        began = time.monotonic()
        for each in executions:
            async with db.transaction():
                await cancel_executions(db, [each], reason="no")
        await eventually(lambda: len(running.stopped) == number)

    after = [look for look in looks if look > began]
    assert len(after) <= 2 + (after[-1] - began) / 0.05


@pytest.mark.timing
@pytest.mark.parametrize("where", ["another process", "the same process"])
@pytest.mark.session("begins when a worker is registered for notifications")
async def test_a_handler_learns_within_a_tenth_of_a_second_that_it_was_cancelled(
    client: Client, ff_dsn: str, db: Connection, where: str
) -> None:
    running, delays = Running(), list[float]()

    async with running.app.worker(dsn=ff_dsn, lease_ttl=A_MINUTE, drain=0):
        for each in await running.submitted(client, db, 21):
            if where == "the same process":
                await client.cancel(each, "no")
            else:
                async with db.transaction():
                    await cancel_execution(db, each, reason="no")
            decided = time.monotonic()
            await eventually(lambda each=each: each in running.stopped)
            delays.append(running.stopped[each] - decided)

    assert statistics.median(delays) < 0.1
