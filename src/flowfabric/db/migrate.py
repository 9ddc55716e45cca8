"""Plain-SQL migrations: applied in order by an explicit command, each in its own transaction."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Final, LiteralString, TypeVar

import asyncpg
import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.faults import SerializationConflict, translated
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection, execute, fetch_all
from flowfabric.errors import ConfigError, Unavailable

PREPARE_LEDGER: Final[LiteralString] = """
CREATE SCHEMA IF NOT EXISTS ff;
CREATE TABLE IF NOT EXISTS ff.migration_annotation (
    version             integer PRIMARY KEY,
    name                text NOT NULL,
    applied_at_ms       bigint NOT NULL,
    backward_compatible boolean NOT NULL,
    checksum            text NOT NULL
)
"""

LEDGER_EXISTS: Final[LiteralString] = """
-- db.migrate: is there a ledger?
SELECT to_regclass('ff.migration_annotation') IS NOT NULL AS found
"""

APPLIED: Final[LiteralString] = """
-- db.migrate: what was applied
SELECT version, name, backward_compatible, checksum FROM ff.migration_annotation ORDER BY version
"""

ANNOTATE: Final[LiteralString] = """
-- db.migrate: record one
INSERT INTO ff.migration_annotation (version, name, applied_at_ms, backward_compatible, checksum)
VALUES (%(version)s, %(name)s, ff.now_ms(), %(backward_compatible)s, %(checksum)s)
"""

# Two deployments migrating at once take turns; the lock is the ledger's own and short-lived.
TAKE_TURN: Final[LiteralString] = "LOCK TABLE ff.migration_annotation IN SHARE ROW EXCLUSIVE MODE"
BE_BRIEF: Final[LiteralString] = "SET LOCAL lock_timeout = '3s'"

_COMPATIBLE: Final = "-- backward_compatible"
_TRIES: Final = 10

T = TypeVar("T")


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """One file of `migrations/`."""

    version: int
    name: str
    sql: str
    backward_compatible: bool
    checksum: str


class Applied(msgspec.Struct, frozen=True):
    """One line of the ledger."""

    version: int
    name: str
    backward_compatible: bool
    checksum: str


class _Found(msgspec.Struct, frozen=True):
    found: bool


def migrations() -> list[Migration]:
    """The migrations this package ships, in order."""
    found: list[Migration] = []
    for path in resources.files("flowfabric.db").joinpath("migrations").iterdir():
        if not path.name.endswith(".sql"):
            continue
        sql = path.read_text(encoding="utf-8")
        version, _, name = path.name.removesuffix(".sql").partition("_")
        found.append(
            Migration(
                version=int(version),
                name=name,
                sql=sql,
                backward_compatible=sql.startswith(_COMPATIBLE),
                checksum=hashlib.sha256(sql.encode()).hexdigest(),
            )
        )
    return sorted(found, key=lambda migration: migration.version)


def needed_version() -> int:
    """The schema version this code is written for."""
    return migrations()[-1].version


async def applied(conn: Connection) -> list[Applied]:
    """The ledger; empty where no migration was ever applied."""
    [ledger] = await fetch_all(conn, LEDGER_EXISTS, _Found)
    return await fetch_all(conn, APPLIED, Applied) if ledger.found else []


async def migrate(dsn: str) -> list[Migration]:
    """Bring the database to this version; what was applied now, in order.

    Raises `Unavailable` when an applied file differs from the one shipped: history is not edited.
    """
    conn = await connect(DatabaseConfig(dsn=dsn, statement_timeout=600.0), role="migrate")
    try:
        await _encoding_must_be_utf8(conn)
        await _patiently(lambda: _prepare(conn))
        return [
            migration
            for migration in migrations()
            if await _patiently(lambda migration=migration: _apply(conn, migration))
        ]
    finally:
        await conn.close()


async def _patiently(step: Callable[[], Awaitable[T]]) -> T:
    """Run a step, again while a lock is taken: it waits briefly each time, so that it holds up
    nobody who queues behind it."""
    tries = 0
    while True:
        try:
            return await step()
        except SerializationConflict as error:
            tries += 1
            if tries == _TRIES:
                why = f"a lock stays taken, is a long transaction open? {error}"
                raise Unavailable("migrate", why) from error
            await asyncio.sleep(random.uniform(0.1, 1.0))


async def _prepare(conn: Connection) -> None:
    """The ledger exists; of two who make it at once, the second looks again."""
    if await applied(conn):
        return
    try:
        await conn.execute(PREPARE_LEDGER)
    except (
        asyncpg.UniqueViolationError,
        asyncpg.DuplicateSchemaError,
        asyncpg.DuplicateTableError,
    ) as error:
        raise SerializationConflict(f"somebody else prepares the ledger: {error}") from error


async def _apply(conn: Connection, migration: Migration) -> bool:
    with translated(f"-- db.migrate: {migration.version:04d}_{migration.name}\n"):
        async with conn.transaction():
            await conn.execute(BE_BRIEF)
            await conn.execute(TAKE_TURN)
            known = {line.version: line for line in await applied(conn)}.get(migration.version)
            if known is not None:
                if known.checksum != migration.checksum:
                    raise Unavailable(
                        "migrate",
                        f"{migration.version:04d}_{known.name} was applied in another form",
                    )
                return False
            await conn.execute(migration.sql)
            await execute(
                conn,
                ANNOTATE,
                version=migration.version,
                name=migration.name,
                backward_compatible=migration.backward_compatible,
                checksum=migration.checksum,
            )
    return True


ENCODING: Final[LiteralString] = """
-- db.migrate: text must be able to hold every character
SELECT current_setting('server_encoding') = 'UTF8' AS found
"""


async def _encoding_must_be_utf8(conn: Connection) -> None:
    [utf8] = await fetch_all(conn, ENCODING, _Found)
    if not utf8.found:
        raise ConfigError("database", "server_encoding", "must be UTF8")
