"""Migrations: once each, in order, by whoever comes first."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncGenerator
from datetime import datetime
from pathlib import Path

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db import migrate as migrate_module
from flowfabric.db.migrate import Migration, applied, migrate, migrations, needed_version
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.errors import ConfigError, FlowFabricError, Unavailable
from flowfabric.testing import TestServer
from tests.db.facts import until, waiters

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


def versions(done: list[Migration]) -> list[int]:
    return [migration.version for migration in done]


def shipped(monkeypatch: pytest.MonkeyPatch, found: list[Migration]) -> None:
    """A package that ships these files."""
    monkeypatch.setattr(migrate_module, "migrations", lambda: found)


def test_the_files_are_numbered_from_one_without_gaps() -> None:
    found = migrations()

    assert versions(found) == list(range(1, len(found) + 1))
    assert len(found) == len(list(FILES.glob("*.sql")))
    assert needed_version() == found[-1].version
    for migration in found:
        text = (FILES / f"{migration.version:04d}_{migration.name}.sql").read_text()
        assert migration.sql == text
        assert migration.backward_compatible is text.startswith("-- backward_compatible")


async def test_an_empty_database_gets_every_migration(empty_dsn: str, conn: Connection) -> None:
    assert await applied(conn) == []

    done = await migrate(empty_dsn)

    assert done == migrations()
    assert [line.version for line in await applied(conn)] == versions(done)
    assert await conn.fetchval("SELECT to_regclass('ff.exec_core') IS NOT NULL")


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

    assert await migrate(empty_dsn) == []
    assert await conn.fetch("SELECT * FROM ff.migration_annotation") == ledger


async def test_an_older_schema_gets_only_what_is_new(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = migrations()
    shipped(monkeypatch, every[:2])
    assert await migrate(empty_dsn) == every[:2]

    shipped(monkeypatch, every)
    assert await migrate(empty_dsn) == every[2:]


async def test_migrations_started_at_the_same_time_take_turns(
    empty_dsn: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = migrations()
    shipped(monkeypatch, every[:1])
    await migrate(empty_dsn)
    shipped(monkeypatch, every)

    done = await asyncio.gather(*[migrate(empty_dsn) for _ in range(3)])

    assert sorted(version for each in done for version in versions(each)) == versions(every[1:])
    assert [line.version for line in await applied(conn)] == versions(every)


async def test_two_first_migrations_at_the_same_time_both_succeed(
    empty_dsn: str, conn: Connection, looking: Connection
) -> None:
    async with conn.transaction():
        await conn.execute("CREATE SCHEMA ff")
        second = asyncio.create_task(migrate(empty_dsn))
        await until(lambda: waiters(looking, "migrate"))

    assert await second == migrations()


async def test_a_migration_that_has_to_wait_for_its_turn_does_not_fail(
    empty_dsn: str, conn: Connection, looking: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(empty_dsn)
    monkeypatch.setattr(
        migrate_module, "BE_BRIEF", "SET LOCAL lock_timeout = '20ms'", raising=False
    )
    async with conn.transaction():
        await conn.execute("LOCK TABLE ff.migration_annotation IN SHARE ROW EXCLUSIVE MODE")
        second = asyncio.create_task(migrate(empty_dsn))
        tries: set[datetime] = set()

        async def tried_again() -> bool:
            tries.update(await waiters(looking, "migrate"))
            return len(tries) > 1 or second.done()

        await until(tried_again)

    assert await second == []


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
    broken = Migration(
        version=len(every) + 1,
        name="broken",
        sql="CREATE TABLE ff.half (); SELECT * FROM ff.not_there",
        backward_compatible=True,
        checksum="",
    )
    shipped(monkeypatch, [*every, broken])

    with pytest.raises(FlowFabricError, match=r"broken.*not_there"):
        await migrate(empty_dsn)

    assert await conn.fetchval("SELECT to_regclass('ff.half') IS NULL")
    assert [line.version for line in await applied(conn)] == versions(every)


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
