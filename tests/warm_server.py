"""A test server that keeps connections to each database open between tests.

The first statements of a new session take ten times as long as the same ones later: the session
reads the catalogs and plans. Only catalogs, statements and their plans are kept; Postgres makes a
plan again when the tables of its statement change. Settings, locks, temporary tables, cursors and
notifications are as new for each test.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import asyncpg

from flowfabric.config import DatabaseConfig
from flowfabric.db.embedded import EmbeddedPostgres
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.testing import TestServer

_RESET: Final = """
CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *;
SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES;
DO $$
DECLARE
    prepared text;
BEGIN
    FOR prepared IN SELECT name FROM pg_prepared_statements WHERE from_sql LOOP
        EXECUTE format('DEALLOCATE %I', prepared);
    END LOOP;
END
$$
"""
"""`DISCARD ALL`, but for the statements that the driver prepared, and plans."""


class WarmServer(TestServer):
    """Lends connections as well: for tests that all run on one event loop."""

    def __init__(
        self, dsn: str, embedded: EmbeddedPostgres | None, *, shared: Path | None = None
    ) -> None:
        super().__init__(dsn, embedded, shared=shared)
        self._warm: dict[str, list[Connection]] = {}

    async def lend_connection(self, dsn: str) -> Connection:
        """A connection to a lent database; `take_connection_back` follows."""
        warm = self._warm.get(dsn, [])
        while warm:
            if not (conn := warm.pop()).is_closed():
                return conn
        return await connect(DatabaseConfig(dsn=dsn), role="tests")

    async def take_connection_back(self, dsn: str, conn: Connection) -> None:
        """The session is reset for the next test, or closed if the test left it unusable."""
        if self.pooled or conn.is_closed() or conn.is_in_transaction():
            await conn.close()
            return
        try:
            await conn.reset()  # the driver forgets its listeners
            await conn.execute(_RESET)
        except (asyncpg.PostgresError, asyncpg.InterfaceError):
            conn.terminate()
        else:
            self._warm.setdefault(dsn, []).append(conn)

    async def drop_spare(self) -> None:
        """The next database that is lent is a new one."""
        while self._spare:
            await self.drop(self._spare.pop())

    def kept(self, dsn: str) -> Sequence[int]:
        warm = self._warm.get(dsn, [])
        return [conn.get_server_pid() for conn in warm if not conn.is_closed()]

    async def drop(self, dsn: str) -> None:
        for conn in self._warm.pop(dsn, []):
            await conn.close()
        await super().drop(dsn)

    async def close_connections(self) -> None:
        """Close the connections that wait for another test."""
        while self._warm:
            for conn in self._warm.popitem()[1]:
                await conn.close()
