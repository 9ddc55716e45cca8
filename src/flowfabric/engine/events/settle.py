"""Waiting until nothing can still appear among the ids that were seen.

An id is taken when a row is inserted and seen when its transaction commits, so of the ids below
one that is seen some may be missing for now. Whoever took them had a transaction id already. Once
every transaction that is older than a mark set now has ended, what is still missing was rolled
back.
"""

from __future__ import annotations

import asyncio
from typing import Final, LiteralString

import msgspec

from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection, fetch_one
from flowfabric.db.transaction import run
from flowfabric.engine.events.outbox import E, Outbox

FIRST_PAUSE: Final = 0.005
LAST_PAUSE: Final = 0.25

MARK: Final[LiteralString] = """
-- events.mark
SELECT pg_current_xact_id()::text::bigint AS xid
"""

OLDEST_RUNNING: Final[LiteralString] = """
-- events.oldest_running
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xid
"""


class _Transaction(msgspec.Struct, frozen=True):
    xid: int


async def mark(conn: Connection) -> int:
    """The id of a transaction of its own: whoever has one by now has a lower one."""
    return (await fetch_one(conn, MARK, _Transaction)).xid


async def oldest_running(conn: Connection) -> int:
    """Every transaction with a lower id than this is over."""
    return (await fetch_one(conn, OLDEST_RUNNING, _Transaction)).xid


async def settle(pool: Pool) -> None:
    """Return once every transaction that had written anything before this call is over.

    No connection is held while it waits.
    """
    until, pause = await run(pool, "mark", mark), FIRST_PAUSE
    while await run(pool, "oldest_running", oldest_running) < until:
        await asyncio.sleep(pause)
        pause = min(pause * 2, LAST_PAUSE)


async def settled_newest(pool: Pool, family: Outbox[E]) -> int:
    """The newest id of the outbox, once every id up to it is final.

    Whatever is committed after this returns has a higher id.
    """
    newest = await run(pool, "newest", family.newest)
    await settle(pool)
    return newest
