"""Brings a database to the schema of this version: migrations, functions, then rights of roles.

`migrations/NNNN_name.sql` changes tables and views. Each file is applied once, in order, and is not
edited after a release. It calls no function of ours: on an empty database they do not exist yet.

`functions/<name>.sql` holds one function. It is applied again whenever its text changes. Only a new
signature needs a migration: one that drops the old function (see `apply_functions`).

A run is a series of short transactions. Each takes the ledger lock, reads what was applied and
applies the next missing migration. The transaction that applies the last one applies the functions
too, so a version in the ledger means that its functions exist. A run that is killed has committed
whole steps only, and the next run continues after them.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, LiteralString, TypeVar

import msgspec

from flowfabric.config import DatabaseConfig, PartitionConfig
from flowfabric.db.apply_functions import Changed, apply_functions
from flowfabric.db.faults import SerializationConflict, translated
from flowfabric.db.grant_roles import Granted, grant_roles
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection, execute, fetch_all, fetch_maybe
from flowfabric.db.store_counts import store_counts
from flowfabric.errors import ConfigError, PermissionDenied, Unavailable
from flowfabric.states import RoleAccess

_MIGRATIONS: Final = Path(__file__).with_name("migrations")
"""Every process looks here when it connects: `importlib.resources` would import a dozen modules."""

PREPARE_LEDGER: Final[LiteralString] = """
CREATE SCHEMA IF NOT EXISTS ff;
CREATE TABLE IF NOT EXISTS ff.migration_annotation (
    version             integer PRIMARY KEY,
    name                text NOT NULL,
    applied_at_ms       bigint NOT NULL,
    backward_compatible boolean NOT NULL,
    checksum            text NOT NULL
);
COMMENT ON TABLE ff.migration_annotation IS 'One row per applied migration.';
COMMENT ON COLUMN ff.migration_annotation.backward_compatible IS
    'May code that does not know the migration work on the schema after it?';
COMMENT ON COLUMN ff.migration_annotation.checksum IS 'SHA-256 of the file that was applied.';
CREATE TABLE IF NOT EXISTS ff.function_annotation (
    name          text PRIMARY KEY,
    checksum      text NOT NULL,
    applied_at_ms bigint NOT NULL
);
COMMENT ON TABLE ff.function_annotation IS
    'One row per SQL function that ff migrate applied. Only functions listed here are dropped.';
COMMENT ON COLUMN ff.function_annotation.checksum IS
    'SHA-256 of the file that was applied; a file that differs is applied again.';
CREATE TABLE IF NOT EXISTS ff.role_annotation (
    role_name text PRIMARY KEY,
    access    text NOT NULL,
    CONSTRAINT role_annotation_access CHECK (access IN ('runtime', 'read'))
);
COMMENT ON TABLE ff.role_annotation IS
    'One row per role that ff migrate grants rights to, again in every run.'
"""

LEDGER_EXISTS: Final[LiteralString] = """
-- db.migrate: does the ledger exist?
SELECT to_regclass('ff.migration_annotation') IS NOT NULL AS found
"""

APPLIED: Final[LiteralString] = """
-- db.migrate: the applied migrations
SELECT version, name, backward_compatible, checksum FROM ff.migration_annotation ORDER BY version
"""

# Not ff.now_ms(), which is created after the migrations.
ANNOTATE: Final[LiteralString] = """
-- db.migrate: record an applied migration
INSERT INTO ff.migration_annotation (version, name, applied_at_ms, backward_compatible, checksum)
VALUES (%(version)s, %(name)s, floor(date_part('epoch', statement_timestamp()) * 1000)::bigint,
        %(backward_compatible)s, %(checksum)s)
"""

# Two runs at the same time: the second waits here for each step of the first, up to the statement
# timeout. Nothing else uses this lock. It is released with the transaction, also if the run is
# killed and behind a pooler.
LEDGER_LOCK: Final[LiteralString] = """
SET LOCAL lock_timeout = 0;
SELECT pg_advisory_xact_lock(hashtextextended('flowfabric.migrate', 0))
"""
# Locks on tables are waited for only briefly: statements of workers queue behind the request.
LOCK_TIMEOUT: Final[LiteralString] = "SET LOCAL lock_timeout = '3s'"

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
    """One row of `ff.migration_annotation`."""

    version: int
    name: str
    backward_compatible: bool
    checksum: str


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """What a run applied and dropped, in order, and the version of the schema afterwards."""

    migrations: Sequence[Migration]
    functions: Sequence[str]
    dropped: Sequence[str]
    version: int
    roles: Sequence[Granted] = ()
    """The roles that have rights in the schema, besides its owner."""


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one transaction did; `functions` is None while migrations are still missing."""

    migration: Migration | None
    functions: Changed | None
    version: int
    roles: Sequence[Granted] = ()


class _Found(msgspec.Struct, frozen=True):
    found: bool


def migrations() -> list[Migration]:
    """The migrations that this package ships, in order."""
    found: list[Migration] = []
    for path in _MIGRATIONS.iterdir():
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
    """The schema version that this code needs."""
    return migrations()[-1].version


async def applied(conn: Connection) -> list[Applied]:
    """The rows of the ledger; none if no migration was ever applied."""
    [ledger] = await fetch_all(conn, LEDGER_EXISTS, _Found)
    return await fetch_all(conn, APPLIED, Applied) if ledger.found else []


async def migrate(dsn: str, *, roles: Mapping[str, RoleAccess] | None = None) -> Migrated:
    """Apply the missing migrations, then the functions whose text changed, then grant to roles.

    Rights are granted to `roles` and, again, to the roles of earlier runs. A database of a newer
    version is not changed, functions included: they belong to the newer release. The partition
    counts are stored unless there are some: a role that may only read can connect then. Raises
    `ConfigError` unless the encoding is UTF8 and the roles exist, `PermissionDenied` if the schema
    belongs to another role, and `Unavailable` if an applied migration differs from the shipped
    one, if a function cannot be replaced, or if a table stays locked.
    """
    conn = await connect(DatabaseConfig(dsn=dsn, statement_timeout=600.0), role="migrate")
    try:
        await _encoding_must_be_utf8(conn)
        await _schema_must_be_own(conn)
        done: list[Migration] = []
        while True:
            step = await _with_retry_on_lock(lambda: _step(conn, roles or {}))
            if step.migration is not None:
                done.append(step.migration)
            if step.functions is not None:
                return Migrated(
                    migrations=done,
                    functions=step.functions.applied,
                    dropped=step.functions.dropped,
                    version=step.version,
                    roles=step.roles,
                )
    finally:
        await conn.close()


async def _with_retry_on_lock(step: Callable[[], Awaitable[T]]) -> T:
    """Run a step, again if a table that it changes is locked; at most ten times."""
    tries = 0
    while True:
        try:
            return await step()
        except SerializationConflict as error:
            tries += 1
            if tries == _TRIES:
                why = f"a table stays locked; is a long transaction open? {error}"
                raise Unavailable("migrate", why) from error
            await asyncio.sleep(random.uniform(0.1, 1.0))


async def _step(conn: Connection, roles: Mapping[str, RoleAccess]) -> _Step:
    """One transaction: the next missing migration; after the last one functions and grants."""
    granted: Sequence[Granted] = ()
    with translated("-- db.migrate\n", conn):
        async with conn.transaction():
            await conn.execute(LEDGER_LOCK)
            await conn.execute(LOCK_TIMEOUT)
            ledger = await applied(conn)
            if not ledger:
                await conn.execute(PREPARE_LEDGER)
            missing = _missing(ledger)
            if missing:
                await _apply(conn, missing[0])
            version = missing[0].version if missing else ledger[-1].version
            functions = None
            if len(missing) <= 1:
                if version > needed_version():
                    functions = Changed()
                else:
                    functions = await apply_functions(conn)
                    await store_counts(conn, PartitionConfig())
                    granted = await grant_roles(conn, roles)
    return _Step(
        migration=missing[0] if missing else None,
        functions=functions,
        version=version,
        roles=granted,
    )


def _missing(ledger: Sequence[Applied]) -> list[Migration]:
    """The shipped migrations that the ledger does not have."""
    known = {row.version: row for row in ledger}
    for migration in migrations():
        row = known.get(migration.version)
        if row is not None and row.checksum != migration.checksum:
            raise Unavailable(
                "migrate",
                f"the applied migration {migration.version:04d}_{row.name} differs from the file "
                "of this version",
            )
    return [migration for migration in migrations() if migration.version not in known]


async def _apply(conn: Connection, migration: Migration) -> None:
    with translated(f"-- db.migrate: {migration.version:04d}_{migration.name}\n", conn):
        await conn.execute(migration.sql)
    await execute(
        conn,
        ANNOTATE,
        version=migration.version,
        name=migration.name,
        backward_compatible=migration.backward_compatible,
        checksum=migration.checksum,
    )


ENCODING: Final[LiteralString] = """
-- db.migrate: can text hold every character?
SELECT current_setting('server_encoding') = 'UTF8' AS found
"""


async def _encoding_must_be_utf8(conn: Connection) -> None:
    [utf8] = await fetch_all(conn, ENCODING, _Found)
    if not utf8.found:
        raise ConfigError("database", "server_encoding", "must be UTF8")


# A role can neither change nor grant anything of another owner's tables. Postgres only warns of a
# GRANT that grants nothing.
OF_ANOTHER: Final[LiteralString] = """
-- db.migrate: does the schema belong to another role?
SELECT current_user::text AS role, pg_get_userbyid(nspowner)::text AS owner FROM pg_namespace
 WHERE nspname = 'ff' AND NOT pg_has_role(nspowner, 'USAGE')
"""


class _Owner(msgspec.Struct, frozen=True):
    role: str
    owner: str


async def _schema_must_be_own(conn: Connection) -> None:
    found = await fetch_maybe(conn, OF_ANOTHER, _Owner)
    if found is not None:
        why = f"role {found.role!r} does not own schema ff; migrate as its owner {found.owner!r}"
        raise PermissionDenied("migrate", why)
