"""Databases for tests: copies of one migrated template, on one server."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from flowfabric.config import DatabaseConfig, database_url
from flowfabric.db.embedded import EmbeddedPostgres
from flowfabric.db.migrate import migrate
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.errors import FlowFabricError
from flowfabric.loop_thread import LoopThread
from flowfabric.testing.empty_database import (
    MigratedSchema,
    empty_database,
    prepare_to_empty,
    read_migrated,
)

_SETTINGS: Final = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "400",
    "autovacuum_naptime": "10s",
}
_LOANS: Final = 50
"""How often one database is lent: what deleted rows leave behind must not slow tests down."""


class TestServer:
    """The server of a test session: that of `FF_DATABASE_URL`, or an embedded one."""

    __test__ = False
    pooled = False
    """Are databases reached through a pooler, which keeps connections open between tests?"""

    def __init__(
        self, dsn: str, embedded: EmbeddedPostgres | None, *, shared: Path | None = None
    ) -> None:
        self._shared = shared
        self._dsn = dsn
        self._embedded = embedded
        self._prefix = f"fftest_{os.getpid()}_"
        self._numbers = itertools.count(1)
        self._template: str | None = None
        self._migrated: MigratedSchema | None = None
        self._spare: list[str] = []
        self._loans: dict[str, int] = {}
        self._thread = LoopThread("flowfabric test databases")
        self._cleaners: dict[str, Connection] = {}

    @classmethod
    def start(cls, *, shared_as: str | None = None) -> Self:
        """Start the server; processes with the same `shared_as` share one embedded server."""
        dsn = database_url()
        if dsn is not None:
            return cls(dsn, None)
        if shared_as is None:
            embedded = EmbeddedPostgres.start(settings=_SETTINGS)
            return cls(embedded.dsn, embedded)
        shared = Path(tempfile.gettempdir()) / f"flowfabric-tests-{shared_as}"
        embedded = EmbeddedPostgres.start(shared / "postgres", settings=_SETTINGS)
        return cls(embedded.dsn, embedded, shared=shared)

    def stop(self) -> None:
        """Stop the embedded server; the last process that shares it removes its directory."""
        self._thread.close()
        if self._embedded is not None:
            self._embedded.stop()
        if self._shared is not None and not (self._shared / "postgres/postmaster.pid").exists():
            shutil.rmtree(self._shared, ignore_errors=True)

    async def create(self) -> str:
        """Create a migrated database and return its DSN."""
        if self._template is None:
            template = f"{self._prefix}template"
            await self._admin(f'CREATE DATABASE "{template}" TEMPLATE template0 ENCODING UTF8')
            await migrate(self.dsn_of(template))
            conn = await self._connect(template)
            try:
                self._migrated = await read_migrated(conn)
            finally:
                await conn.close()
            self._template = template
        name = f"{self._prefix}{next(self._numbers)}"
        # Copying files is five times as fast on a server without fsync.
        strategy = "" if self._embedded is None else " STRATEGY FILE_COPY"
        await self._admin(f'CREATE DATABASE "{name}" TEMPLATE "{self._template}"{strategy}')
        return self.dsn_of(name)

    async def lend(self) -> str:
        """The DSN of a migrated database without a row, for one test; `take_back` follows.

        Tests get it one after the other: copying a database takes longer than most tests.
        """
        dsn = self._spare.pop() if self._spare else await self.create()
        self._loans[dsn] = self._loans.get(dsn, 0) + 1
        return dsn

    async def take_back(self, dsn: str) -> None:
        """Empty a lent database for the next test; drop it if it cannot be made as new."""
        if self._loans[dsn] < _LOANS and await self._thread.run(self._is_as_new(dsn)):
            self._spare.append(dsn)
        else:
            await self.drop(dsn)

    async def create_empty(self) -> str:
        """Create a database without the schema and return its DSN."""
        name = f"{self._prefix}{next(self._numbers)}"
        await self._admin(f'CREATE DATABASE "{name}" TEMPLATE template0 ENCODING UTF8')
        return self.dsn_of(name)

    async def drop(self, dsn: str) -> None:
        """Drop a database and end the connections to it."""
        await self._thread.run(self._forget(dsn))
        await self._admin(f'DROP DATABASE IF EXISTS "{_name(dsn)}" WITH (FORCE)')

    async def drop_template(self) -> None:
        """Drop the template, and the databases that wait for another test."""
        while self._spare:
            await self.drop(self._spare.pop())
        if self._template is not None:
            await self.drop(self.dsn_of(self._template))
            self._template = None

    def kept(self, dsn: str) -> Sequence[int]:
        """The server processes of connections to a database that stay open between tests."""
        return ()

    def dsn_of(self, name: str) -> str:
        return urlunsplit(urlsplit(self._dsn)._replace(path=f"/{name}"))

    async def _is_as_new(self, dsn: str) -> bool:
        """Empty a database; False if it is not as new then, or a test has broken it."""
        assert self._migrated is not None
        try:
            if dsn not in self._cleaners:
                self._cleaners[dsn] = await self._connect(_name(dsn))
                await prepare_to_empty(self._cleaners[dsn])
            cleaner = self._cleaners[dsn]
            return await empty_database(
                cleaner, self._migrated, idle_too=not self.pooled, kept=self.kept(dsn)
            )
        except (FlowFabricError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False

    async def _forget(self, dsn: str) -> None:
        """Close the connection that empties a database."""
        if (cleaner := self._cleaners.pop(dsn, None)) is not None:
            await cleaner.close()

    async def _connect(self, name: str) -> Connection:
        return await connect(DatabaseConfig(dsn=self.dsn_of(name), pooler=False), role="tests")

    async def _admin(self, statement: str) -> None:
        conn = await self._connect(_name(self._dsn))
        try:
            await conn.execute(statement)
        finally:
            await conn.close()


def _name(dsn: str) -> str:
    """The name of the database."""
    return urlsplit(dsn).path.removeprefix("/")
