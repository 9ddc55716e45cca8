"""A test server that keeps one connection to each database open between tests.

The first statements of a new session take ten times as long as the same ones later: the session
reads the catalogs. Only that is kept. Settings, statements, plans and all else of the session are
as new for each test.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flowfabric.config import DatabaseConfig
from flowfabric.db.embedded import EmbeddedPostgres
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.testing import TestServer


class WarmServer(TestServer):
    """Lends connections as well: for tests that all run on one event loop."""

    def __init__(
        self, dsn: str, embedded: EmbeddedPostgres | None, *, shared: Path | None = None
    ) -> None:
        super().__init__(dsn, embedded, shared=shared)
        self._warm: dict[str, Connection] = {}

    async def lend_connection(self, dsn: str) -> Connection:
        """A connection to a lent database; `take_connection_back` follows."""
        conn = self._warm.pop(dsn, None)
        if conn is None or conn.is_closed():
            return await connect(DatabaseConfig(dsn=dsn), role="tests")
        return conn

    async def take_connection_back(self, dsn: str, conn: Connection) -> None:
        """The session is as new for the next test; it is closed if the test left it unusable."""
        if self.pooled or conn.is_closed() or conn.is_in_transaction() or dsn in self._warm:
            await conn.close()
            return
        await conn.reload_schema_state()
        await conn.execute("DISCARD ALL")
        self._warm[dsn] = conn

    def kept(self, dsn: str) -> Sequence[int]:
        conn = self._warm.get(dsn)
        return () if conn is None or conn.is_closed() else (conn.get_server_pid(),)

    async def drop(self, dsn: str) -> None:
        if (conn := self._warm.pop(dsn, None)) is not None:
            await conn.close()
        await super().drop(dsn)

    async def close_connections(self) -> None:
        """Close the connections that wait for another test."""
        while self._warm:
            await self._warm.popitem()[1].close()
