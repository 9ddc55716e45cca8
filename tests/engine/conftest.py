"""One database for a test process, not for each test: emptied after each, its clock restored."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, TypeVar

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.testing import TestServer

T = TypeVar("T")

EMPTY = """
DO $$
DECLARE
    filled text;
BEGIN
    FOR filled IN SELECT tablename FROM pg_tables
                   WHERE schemaname = 'ff' AND tablename NOT LIKE '%annotation' LOOP
        EXECUTE format('DELETE FROM ff.%I', filled);
    END LOOP;
END
$$;
DROP SCHEMA IF EXISTS ff_testing CASCADE;
"""


class Kept:
    """The database of this process, and whoever empties it: on a loop and a line of its own."""

    def __init__(self, server: TestServer) -> None:
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.dsn = self._wait(server.create())
        self._conn: Connection = self._wait(connect(DatabaseConfig(dsn=self.dsn), role="cleaner"))
        self._empty = EMPTY + self._wait(
            self._conn.fetchval("SELECT pg_get_functiondef('ff.now_ms()'::regprocedure)")
        )

    async def empty(self) -> None:
        """Remove every row, and let the clock run as the migrations made it."""
        emptied = asyncio.run_coroutine_threadsafe(self._conn.execute(self._empty), self._loop)
        await asyncio.wrap_future(emptied)

    def close(self) -> None:
        self._wait(self._conn.close())
        self._wait(self._server.drop(self.dsn))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@pytest.fixture(scope="session")
def kept(ff_server: TestServer) -> Generator[Kept]:
    """A migrated database that the tests of this process use one after the other."""
    made = Kept(ff_server)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
async def ff_dsn(kept: Kept) -> AsyncGenerator[str]:
    """A database without a row, running on real time; whatever a test leaves in it is removed."""
    try:
        yield kept.dsn
    finally:
        await kept.empty()
