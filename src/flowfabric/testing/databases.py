"""Databases for tests: copies of one migrated template, on one server."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from flowfabric.config import DatabaseConfig, database_url
from flowfabric.db.embedded import EmbeddedPostgres
from flowfabric.db.migrate import migrate
from flowfabric.db.pool import connect

_SETTINGS: Final = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "400",
    "autovacuum_naptime": "10s",
}


class TestServer:
    """The server of a test session: that of `FF_DATABASE_URL`, or an embedded one."""

    __test__ = False

    def __init__(
        self, dsn: str, embedded: EmbeddedPostgres | None, *, shared: Path | None = None
    ) -> None:
        self._shared = shared
        self._dsn = dsn
        self._embedded = embedded
        self._prefix = f"fftest_{os.getpid()}_"
        self._numbers = itertools.count(1)
        self._template: str | None = None

    @classmethod
    def start(cls, *, shared_as: str | None = None) -> TestServer:
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
            self._template = template
        name = f"{self._prefix}{next(self._numbers)}"
        # Copying files is five times as fast on a server without fsync.
        strategy = "" if self._embedded is None else " STRATEGY FILE_COPY"
        await self._admin(f'CREATE DATABASE "{name}" TEMPLATE "{self._template}"{strategy}')
        return self.dsn_of(name)

    async def create_empty(self) -> str:
        """Create a database without the schema and return its DSN."""
        name = f"{self._prefix}{next(self._numbers)}"
        await self._admin(f'CREATE DATABASE "{name}" TEMPLATE template0 ENCODING UTF8')
        return self.dsn_of(name)

    async def drop(self, dsn: str) -> None:
        """Drop a database and end the connections to it."""
        name = urlsplit(dsn).path.removeprefix("/")
        await self._admin(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    async def drop_template(self) -> None:
        if self._template is not None:
            await self.drop(self.dsn_of(self._template))
            self._template = None

    def dsn_of(self, name: str) -> str:
        return urlunsplit(urlsplit(self._dsn)._replace(path=f"/{name}"))

    async def _admin(self, statement: str) -> None:
        conn = await connect(DatabaseConfig(dsn=self._dsn), role="tests")
        try:
            await conn.execute(statement)
        finally:
            await conn.close()
