"""Workers, clients and commands behind a real PgBouncer in transaction mode."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Generator

import pytest

from flowfabric import App, Client, Ctx
from flowfabric.config import DATABASE_POOLER, DatabaseConfig
from flowfabric.db.migrate import migrate, needed_version
from flowfabric.db.pool import PLANNER_SETTINGS, connect
from flowfabric.db.rows import Connection
from flowfabric.engine.workers.hold_worker_lock import hold_worker_lock
from flowfabric.engine.workers.register_worker import register_worker
from flowfabric.errors import ConfigError
from flowfabric.testing import TestServer
from tests.pgbouncer import PgBouncer, installed
from tests.worker.facts import count, lease_expired_events

pytestmark = [
    pytest.mark.direct("connects to a pooler"),
    pytest.mark.timeout(60),
    pytest.mark.session("starts a PgBouncer of its own"),
    pytest.mark.skipif(installed() is None, reason="no pgbouncer: apt-get install pgbouncer"),
]

TIMEOUTS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")

Through = Callable[..., str]


@pytest.fixture
def through() -> Generator[Through]:
    """The DSN of a database through a PgBouncer with these settings."""
    running: list[PgBouncer] = []

    def start(dsn: str, **settings: object) -> str:
        running.append(PgBouncer.start(dsn, **settings))
        return running[-1].through(dsn)

    try:
        yield start
    finally:
        for each in running:
            each.stop()


def made() -> App:
    app = App()

    @app.task("double")
    async def double(ctx: Ctx, number: int) -> int:
        await ctx.progress(50)
        return 2 * number

    @app.task("family")
    async def family(ctx: Ctx, number: int) -> int:
        return sum(await ctx.gather([double.call(number), double.call(number + 1)]))

    @app.task("book")
    async def book(ctx: Ctx, number: int) -> int:
        return await (await ctx.transaction()).fetchval("SELECT $1::integer", number)

    return app


async def test_results_children_flows_and_transactions_come_through(
    ff_dsn: str, through: Through, db: Connection
) -> None:
    app, dsn = made(), through(ff_dsn)
    async with (
        await Client.connect(dsn, pooler=True) as client,
        app.worker(dsn=dsn, pooler=True, lease_ttl=5),
    ):
        handles = [
            await client.submit(app.tasks[kind].call(number))
            for number in range(5)
            for kind in ("double", "family", "book")
        ]
        flow = app.flow("pair")
        flow.add(app.tasks["double"].call(2), name="second").after(
            flow.add(app.tasks["double"].call(1), name="first")
        )
        started = await client.start(flow)

        results = [await handle.result(timeout=20) for handle in handles]
        of_flow = await started.result(timeout=20)

    assert results == [each for n in range(5) for each in (2 * n, 4 * n + 2, n)]
    assert of_flow == {"first": 2, "second": 4}
    assert await lease_expired_events(db) == 0


async def test_more_processes_than_server_connections_take_turns(
    ff_dsn: str, through: Through, db: Connection
) -> None:
    app, dsn = made(), through(ff_dsn, default_pool_size=2)
    async with (
        await Client.connect(dsn, pooler=True) as client,
        app.worker(dsn=dsn, pooler=True, lease_ttl=5),
        app.worker(dsn=dsn, pooler=True, lease_ttl=5),
    ):
        handles = await client.submit_many([app.tasks["family"].call(n) for n in range(20)])
        results = await asyncio.gather(*(handle.result(timeout=30) for handle in handles))

    assert results == [4 * number + 2 for number in range(20)]
    assert await count(db, "completed") == 60
    assert await lease_expired_events(db) == 0


async def test_a_migration_and_the_commands_come_through(
    ff_server: TestServer, through: Through, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = await ff_server.create_empty()
    dsn = through(direct)
    monkeypatch.setenv(DATABASE_POOLER, "1")
    try:
        migrated = await migrate(dsn)
        said = [
            await ff(*command, "--database-url", dsn)
            for command in (("submit", "job"), ("executions", "list"))
        ]
    finally:
        await ff_server.drop(direct)

    assert migrated.version == needed_version()
    assert "job" in said[1]


async def ff(*arguments: str) -> str:
    """What a command prints; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "flowfabric.cli",
        *arguments,
        env={**os.environ, "COLUMNS": "200"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_a_process_that_was_not_told_of_the_pooler_is_told_what_to_set(
    ff_dsn: str, through: Through
) -> None:
    with pytest.raises(ConfigError, match="is a pooler: set FF_DATABASE_POOLER=1"):
        await connect(DatabaseConfig(dsn=through(ff_dsn), pooler=False), role="tests")


async def test_a_call_that_is_given_up_cancels_no_statement_of_another_client(
    ff_dsn: str, through: Through
) -> None:
    """The cancel of one client must not reach the session that it held a moment ago."""
    config = DatabaseConfig(dsn=through(ff_dsn, default_pool_size=1), pooler=True)
    hasty, patient = await connect(config, role="tests"), await connect(config, role="tests")
    try:
        for _ in range(5):
            sleeping = asyncio.create_task(hasty.fetchval("SELECT pg_sleep(5)"))
            await asyncio.sleep(0.02)
            waiting = asyncio.create_task(patient.fetchval("SELECT 7 FROM pg_sleep(0.02)"))
            sleeping.cancel()
            await asyncio.wait({sleeping})

            assert await waiting == 7
            assert await hasty.fetchval("SELECT 1") == 1
    finally:
        await hasty.close()
        await patient.close()


async def test_behind_a_pooler_no_lock_is_taken_even_if_nobody_said_so(
    ff_dsn: str, through: Through, db: Connection
) -> None:
    dsn = through(ff_dsn, ignore_startup_parameters=",".join(pool_settings()))
    async with made().worker(dsn=dsn, pooler=True, worker_instance_id="told"):
        for name in ("told", "untold"):
            conn = await connect(DatabaseConfig(dsn=dsn, pooler=name == "told"), role="tests")
            await register_worker(
                conn, worker_id="w", worker_instance_id="untold", lanes=["a"], liveness_ttl=30
            )
            assert (await hold_worker_lock(conn, "untold")).held is False
            await conn.close()
        locks = await db.fetch("SELECT liveness_lock FROM ff.worker_registry")
        assert [row["liveness_lock"] for row in locks] == [None, None]


def pool_settings() -> list[str]:
    """What a connection sends that does not know of its pooler."""
    return [*PLANNER_SETTINGS, "search_path", "jit", *TIMEOUTS]
