"""The connection that renews holds the lock of its worker, for as long as the process lives."""

import asyncio

import pytest

from flowfabric import App, Client, Ctx
from flowfabric.db.rows import Connection
from tests.worker.facts import eventually, lease_expired_events

pytestmark = [
    pytest.mark.direct("only a session can hold the lock"),
    pytest.mark.timeout(60),
    pytest.mark.session("a lock is held by a session"),
]

HOLDERS = """
SELECT a.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)
 WHERE l.locktype = 'advisory' AND a.datname = current_database()
   AND a.application_name = 'flowfabric renewer'
"""
LOCKED = "SELECT liveness_lock IS NOT NULL FROM ff.worker_registry"


async def holder(db: Connection) -> int | None:
    return await db.fetchval(HOLDERS)


async def test_a_worker_whose_connection_was_cut_holds_its_lock_again_at_once(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, gate = App(), asyncio.Event()

    @app.task("job")
    async def job(ctx: Ctx) -> int:
        await gate.wait()
        return 1

    handle = await client.submit(job.call())
    async with app.worker(dsn=ff_dsn, lease_ttl=30):
        first = await holder(db)
        assert first is not None
        assert await db.fetchval(LOCKED)
        await db.execute("SELECT pg_terminate_backend($1)", first)

        async def another_session_holds_it() -> bool:
            return await holder(db) not in (None, first)

        await eventually(another_session_holds_it, within=1.9)
        gate.set()
        assert await handle.result(timeout=10) == 1
    assert await lease_expired_events(db) == 0
    assert await holder(db) is None


async def test_a_worker_that_was_deleted_registers_again_with_its_lock(
    ff_dsn: str, db: Connection
) -> None:
    """As one that was cut off for so long that it was taken for dead."""
    async with App().worker(dsn=ff_dsn, lease_ttl=30):
        await db.execute("DELETE FROM ff.worker_registry")
        await db.execute("SELECT pg_terminate_backend($1)", await holder(db))

        await eventually(lambda: db.fetchval(LOCKED), within=5)


async def test_two_processes_with_one_name_are_warned_of_and_both_work(
    client: Client, ff_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()

    @app.task("job")
    async def job(ctx: Ctx) -> int:
        return 1

    async with app.worker(dsn=ff_dsn, worker_instance_id="twin"):
        assert "another process holds the lock" not in caplog.text
        async with app.worker(dsn=ff_dsn, worker_instance_id="twin"):
            assert "another process holds the lock of this worker_instance_id" in caplog.text
            assert await (await client.submit(job.call())).result(timeout=10) == 1
