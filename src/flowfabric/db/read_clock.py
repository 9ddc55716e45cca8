"""The time of the database, by which everything durable is dated."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString

import msgspec

from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection, fetch_one
from flowfabric.db.transaction import run
from flowfabric.instants import instant

READ_CLOCK: Final[LiteralString] = """
-- db.read_clock
SELECT ff.now_ms() AS now_ms
"""


class _Row(msgspec.Struct, frozen=True):
    now_ms: int


async def read_clock(pool: Pool) -> datetime:
    """What time it is for the database."""

    async def read(conn: Connection) -> datetime:
        return instant((await fetch_one(conn, READ_CLOCK, _Row)).now_ms)

    return await run(pool, "read_clock", read)
