"""Migrations: once each, in order, also when several processes migrate at once or one dies."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import sys
from collections.abc import AsyncGenerator
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db import apply_functions
from flowfabric.db import migrate as migrate_module
from flowfabric.db.apply_functions import functions, stored_functions
from flowfabric.db.migrate import Migrated, Migration, applied, migrate, migrations, needed_version
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.db.schema import SCHEMA_SQL, describe_schema
from flowfabric.errors import ConfigError, FlowFabricError, Unavailable
from flowfabric.testing import Clock, TestServer
from tests.db.facts import until, waiters, waiting

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('flowfabric.migrate', 0))"

FILES = Path(migrate_module.__file__).parent / "migrations"


@pytest.fixture
async def conn(empty_dsn: str) -> AsyncGenerator[Connection]:
    """A connection to the database that is to be migrated."""
    conn = await connect(DatabaseConfig(dsn=empty_dsn), role="tests")
    try:
        yield conn
    finally:
        await conn.close()


looking = conn


def made_up(name: str, sql: str, *, after: int = 0) -> Migration:
    """A migration that a later release ships, `after` others that it ships too."""
    return Migration(
        version=needed_version() + 1 + after,
        name=name,
        sql=sql,
        backward_compatible=True,
        checksum=hashlib.sha256(sql.encode()).hexdigest(),
    )


def versions(done: Migrated) -> list[int]:
    return [migration.version for migration in done.migrations]


def shipped(monkeypatch: pytest.MonkeyPatch, found: list[Migration]) -> None:
    """A package that ships these files."""
    monkeypatch.setattr(migrate_module, "migrations", lambda: found)


def test_the_files_are_numbered_from_one_without_gaps() -> None:
    found = migrations()

    assert [each.version for each in found] == list(range(1, len(found) + 1))
    assert len(found) == len(list(FILES.glob("*.sql")))
    assert needed_version() == found[-1].version
    for migration in found:
        text = (FILES / f"{migration.version:04d}_{migration.name}.sql").read_text()
        assert migration.sql == text
        assert migration.backward_compatible is text.startswith("-- backward_compatible")


async def test_an_empty_database_gets_every_migration_and_function(
    empty_dsn: str, conn: Connection
) -> None:
    assert await applied(conn) == []

    done = await migrate(empty_dsn)

    assert done.migrations == migrations()
    assert done.functions == [function.name for function in functions()]
    assert (done.dropped, done.version) == ([], needed_version())
    assert [row.version for row in await applied(conn)] == versions(done)
    assert await describe_schema(conn) == SCHEMA_SQL.read_text(encoding="utf-8")


async def test_each_migration_is_annotated(empty_dsn: str, conn: Connection) -> None:
    before = await conn.fetchval("SELECT floor(extract(epoch FROM now()) * 1000)::bigint")
    await migrate(empty_dsn)

    rows = await conn.fetch("SELECT *, ff.now_ms() AS now FROM ff.migration_annotation ORDER BY 1")

    for row, migration in zip(rows, migrations(), strict=True):
        assert (row["version"], row["name"]) == (migration.version, migration.name)
        assert row["backward_compatible"] is migration.backward_compatible
        assert row["checksum"] == hashlib.sha256(migration.sql.encode()).hexdigest()
        assert before <= row["applied_at_ms"] <= row["now"]


async def test_a_second_call_does_nothing(empty_dsn: str, conn: Connection) -> None:
    await migrate(empty_dsn)
    ledger = await conn.fetch("SELECT * FROM ff.migration_annotation")
    applied_functions = await conn.fetch("SELECT * FROM ff.function_annotation ORDER BY name")

    done = await migrate(empty_dsn)

    assert (done.migrations, done.functions, done.dropped) == ([], [], [])
    assert done.version == needed_version()
    assert await conn.fetch("SELECT * FROM ff.migration_annotation") == ledger
    assert (
        await conn.fetch("SELECT * FROM ff.function_annotation ORDER BY name") == applied_functions
    )


async def test_a_clock_that_a_test_set_is_left_alone(ff_dsn: str, db: Connection) -> None:
    conn = await connect(DatabaseConfig(dsn=ff_dsn), role="tests")
    clock = await Clock.install(conn)
    then = await clock.now_ms()

    assert (await migrate(ff_dsn)).functions == []

    assert await clock.now_ms() == then
    await conn.close()


async def test_an_older_schema_gets_only_what_is_new(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = migrations()
    await migrate(empty_dsn)
    later = [
        made_up("one", "CREATE TABLE ff.one ()"),
        made_up("two", "CREATE TABLE ff.two ()", after=1),
    ]

    shipped(monkeypatch, [*first, *later])
    done = await migrate(empty_dsn)

    assert (done.migrations, done.functions) == (later, [])


async def test_a_newer_schema_keeps_its_functions(
    empty_dsn: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = migrations()
    shipped(monkeypatch, [*ours, made_up("newer", "CREATE TABLE ff.newer ()")])
    newer = (await migrate(empty_dsn)).version
    await conn.execute("UPDATE ff.function_annotation SET checksum = 'of the newer release'")
    await conn.execute("INSERT INTO ff.function_annotation VALUES ('of_the_newer_release', '', 0)")

    shipped(monkeypatch, ours)
    done = await migrate(empty_dsn)

    assert [*done.migrations, *done.functions, *done.dropped] == []
    assert done.version == newer


# Several at once.


async def test_first_migrations_at_the_same_time_wait_for_each_other(
    empty_dsn: str, conn: Connection
) -> None:
    done = await asyncio.gather(*[migrate(empty_dsn) for _ in range(4)])

    assert sorted(version for each in done for version in versions(each)) == [
        migration.version for migration in migrations()
    ]
    assert sorted(name for each in done for name in each.functions) == sorted(
        function.name for function in functions()
    )
    assert {each.version for each in done} == {needed_version()}
    assert await describe_schema(conn) == SCHEMA_SQL.read_text(encoding="utf-8")


async def test_later_migrations_at_the_same_time_wait_for_each_other(
    empty_dsn: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(empty_dsn)
    later = [made_up(f"n{n}", f"CREATE TABLE ff.n{n} ()", after=n) for n in range(5)]
    shipped(monkeypatch, [*migrations(), *later])

    done = await asyncio.gather(*[migrate(empty_dsn) for _ in range(3)])

    assert sorted(version for each in done for version in versions(each)) == [
        migration.version for migration in later
    ]


async def test_a_run_waits_for_another_one_however_long_that_takes(
    empty_dsn: str, conn: Connection, looking: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate_module, "LOCK_TIMEOUT", "SET LOCAL lock_timeout = '1ms'")
    monkeypatch.setattr(migrate_module, "_TRIES", 1)
    async with conn.transaction():
        await conn.execute(LOCK)
        second = asyncio.create_task(migrate(empty_dsn))
        await until(lambda: waiters(looking, "migrate"))

    assert (await second).migrations == migrations()


async def test_a_table_that_is_in_use_is_waited_for_briefly_and_again(
    empty_dsn: str, conn: Connection, looking: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(empty_dsn)
    later = made_up("busy", "ALTER TABLE ff.route ADD COLUMN note text")
    shipped(monkeypatch, [*migrations(), later])
    monkeypatch.setattr(migrate_module, "LOCK_TIMEOUT", "SET LOCAL lock_timeout = '20ms'")
    async with conn.transaction():
        await conn.execute("LOCK TABLE ff.route IN ACCESS SHARE MODE")
        second = asyncio.create_task(migrate(empty_dsn))
        tries: set[datetime] = set()

        async def tried_again() -> bool:
            tries.update(await waiters(looking, "migrate"))
            return len(tries) > 1 or second.done()

        await until(tried_again)

    assert (await second).migrations == [later]


async def test_a_lock_that_stays_taken_is_reported(
    empty_dsn: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(empty_dsn)
    later = made_up("busy", "ALTER TABLE ff.route ADD COLUMN note text")
    shipped(monkeypatch, [*migrations(), later])
    monkeypatch.setattr(migrate_module, "LOCK_TIMEOUT", "SET LOCAL lock_timeout = '1ms'")
    monkeypatch.setattr(migrate_module, "_TRIES", 2)
    async with conn.transaction():
        await conn.execute("LOCK TABLE ff.route IN ACCESS SHARE MODE")

        with pytest.raises(Unavailable, match="a table stays locked"):
            await migrate(empty_dsn)


# One that dies.

COUNTS = (
    "CREATE TABLE ff.partition_config (singleton boolean PRIMARY KEY DEFAULT true, version text,"
    " num_flow_partitions integer, num_budget_partitions integer, num_quota_partitions integer)"
)


class Mortal:
    """A connection whose backend is ended before its statement number `lives`."""

    def __init__(self, conn: asyncpg.Connection[Any], killer: Connection, lives: int) -> None:
        self._conn, self._killer, self.lives = conn, killer, lives

    async def _live(self) -> None:
        self.lives -= 1
        if self.lives == 0:
            await self._killer.execute("SELECT pg_terminate_backend($1, 5000)", self.pid)

    @property
    def pid(self) -> int:
        return self._conn.get_server_pid()

    async def execute(self, *call: Any) -> Any:
        await self._live()
        return await self._conn.execute(*call)

    async def fetch(self, *call: Any) -> Any:
        await self._live()
        return await self._conn.fetch(*call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)


async def test_a_run_that_dies_before_any_of_its_statements_is_finished_by_the_next(
    empty_dsn: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [function for function in functions() if function.name in ("now_ms", "route_id")]
    steps = [
        Migration(
            version=version,
            name=f"n{version}",
            sql=sql,
            backward_compatible=True,
            checksum=hashlib.sha256(sql.encode()).hexdigest(),
        )
        for version, sql in enumerate([COUNTS, "CREATE TABLE ff.two ()"], 1)
    ]
    shipped(monkeypatch, steps)
    monkeypatch.setattr(apply_functions, "functions", lambda: few)
    deaths = 0
    while True:
        mortal: list[Mortal] = []

        async def opened(config: DatabaseConfig, *, role: str) -> Any:
            mortal.append(Mortal(await connect(config, role=role), conn, deaths + 1))  # noqa: B023
            return mortal[0]  # noqa: B023

        with monkeypatch.context() as patched:
            patched.setattr(migrate_module, "connect", opened)
            with contextlib.suppress(FlowFabricError, asyncpg.InterfaceError):
                await migrate(empty_dsn)
        await migrate(empty_dsn)

        assert [row.version for row in await applied(conn)] == [1, 2]
        assert {row.name for row in (await stored_functions(conn)).values() if row.found} == {
            function.name for function in few
        }
        if mortal[0].lives > 0:
            break
        deaths += 1
        await conn.execute("DROP SCHEMA ff CASCADE")
    assert deaths >= 19


@pytest.mark.session("kills a session by its process id")
async def test_a_process_that_is_killed_while_it_migrates_holds_up_nobody(
    empty_dsn: str, conn: Connection, looking: Connection
) -> None:
    async with conn.transaction():
        await conn.execute("CREATE SCHEMA ff")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "flowfabric.cli", "migrate", "--database-url", empty_dsn
        )
        await until(lambda: waiters(looking, "migrate"))
        pids = await looking.fetch(
            "SELECT pid FROM pg_stat_activity"
            " WHERE application_name = 'flowfabric migrate' AND datname = current_database()"
        )
        assert [await waiting(looking, row["pid"]) for row in pids] == [True]
        process.send_signal(signal.SIGKILL)
        await process.wait()

    done = await migrate(empty_dsn)

    assert done.migrations == migrations()
    assert await describe_schema(conn) == SCHEMA_SQL.read_text(encoding="utf-8")


# Faults.


async def test_history_is_not_edited(
    empty_dsn: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    *kept, last = migrations()
    await migrate(empty_dsn)
    edited = Migration(
        version=last.version,
        name=last.name,
        sql="CREATE TABLE ff.other ()",
        backward_compatible=False,
        checksum=hashlib.sha256(b"CREATE TABLE ff.other ()").hexdigest(),
    )
    shipped(monkeypatch, [*kept, edited])

    with pytest.raises(Unavailable, match=f"{last.version:04d}_{last.name}") as error:
        await migrate(empty_dsn)

    assert error.value.operation == "migrate"
    assert await conn.fetchval("SELECT to_regclass('ff.other') IS NULL")


async def test_a_migration_that_fails_leaves_nothing_of_itself(
    empty_dsn: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = migrations()
    await migrate(empty_dsn)
    broken = made_up("broken", "CREATE TABLE ff.half (); SELECT * FROM ff.not_there")
    shipped(monkeypatch, [*every, broken])

    with pytest.raises(FlowFabricError, match=r"broken.*not_there"):
        await migrate(empty_dsn)

    assert await conn.fetchval("SELECT to_regclass('ff.half') IS NULL")
    assert [row.version for row in await applied(conn)] == [each.version for each in every]


async def test_a_database_that_cannot_hold_every_character_is_refused(
    ff_server: TestServer, db: Connection
) -> None:
    name = f"fftest_ascii_{os.getpid()}"
    await db.execute(
        f"CREATE DATABASE {name} TEMPLATE template0 ENCODING SQL_ASCII LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    try:
        with pytest.raises(ConfigError, match="server_encoding: must be UTF8"):
            await migrate(ff_server.dsn_of(name))
    finally:
        await ff_server.drop(ff_server.dsn_of(name))
