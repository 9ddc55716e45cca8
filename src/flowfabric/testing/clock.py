"""The clock of a database, set by a test."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_one
from flowfabric.instants import check_instant, instant
from flowfabric.policy import milliseconds

INSTALL: Final[LiteralString] = """
CREATE SCHEMA ff_testing;
CREATE TABLE ff_testing.clock (now_ms bigint NOT NULL);
INSERT INTO ff_testing.clock SELECT ff.now_ms();
CREATE OR REPLACE FUNCTION ff.now_ms() RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    AS 'SELECT now_ms FROM ff_testing.clock';
"""

ADVANCE: Final[LiteralString] = """
-- testing.clock: advance
UPDATE ff_testing.clock SET now_ms = now_ms + %(ms)s
"""

READ: Final[LiteralString] = """
-- testing.clock: read
SELECT ff.now_ms() AS now_ms
"""


class _Now(msgspec.Struct, frozen=True):
    now_ms: int


class Clock:
    """The clock `ff.now_ms()` of one database: stopped, and moved by the test."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    @classmethod
    async def install(cls, conn: Connection) -> Clock:
        """Stop the clock of the database that `conn` is connected to."""
        await conn.execute(INSTALL)
        return cls(conn)

    async def advance(self, by: float | timedelta) -> None:
        """Move the clock forward, or back if `by` is negative."""
        await execute(self._conn, ADVANCE, ms=milliseconds(by))

    async def set(self, at: datetime) -> None:
        """Set the clock to this instant; raises `ValidationError` if it has no time zone."""
        await self.advance(check_instant(at, field="at") - await self.now())

    async def now(self) -> datetime:
        return instant(await self.now_ms())

    async def now_ms(self) -> int:
        return (await fetch_one(self._conn, READ, _Now)).now_ms
