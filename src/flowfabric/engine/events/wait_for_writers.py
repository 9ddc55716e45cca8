"""Waits until the ids below a visible one are final.

A row gets its id when it is inserted, and is visible when its transaction commits. So below a
visible id some ids may be missing for a while. The transactions that have those ids got their
transaction id before. Once every transaction with an id below a new one has ended, the rows that
are still missing were rolled back.
"""

from __future__ import annotations

import asyncio
from typing import Final, LiteralString

import msgspec

from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection, fetch_one
from flowfabric.db.transaction import run
from flowfabric.engine.events.outbox import E, Outbox
from flowfabric.engine.events.wait_for_flush import wait_for_flush

FIRST_PAUSE: Final = 0.005
LAST_PAUSE: Final = 0.25

NEW_XID: Final[LiteralString] = """
-- events.new_xid
SELECT pg_current_xact_id()::text::bigint AS xid
"""

OLDEST_RUNNING_XID: Final[LiteralString] = """
-- events.oldest_running_xid
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xid
"""


class _Transaction(msgspec.Struct, frozen=True):
    xid: int


async def new_xid(conn: Connection) -> int:
    """A new transaction id; every transaction that has written before has a lower one."""
    return (await fetch_one(conn, NEW_XID, _Transaction)).xid


async def oldest_running_xid(conn: Connection) -> int:
    """The transaction id below which every transaction has ended."""
    return (await fetch_one(conn, OLDEST_RUNNING_XID, _Transaction)).xid


async def wait_for_writers(pool: Pool) -> None:
    """Return once every transaction that had written anything before this call has ended.

    No connection is held between the looks.
    """
    until, pause = await run(pool, "new_xid", new_xid), FIRST_PAUSE
    while await run(pool, "oldest_running_xid", oldest_running_xid) < until:
        await asyncio.sleep(pause)
        pause = min(pause * 2, LAST_PAUSE)


async def newest_final_id(pool: Pool, outbox: Outbox[E]) -> int:
    """The newest id of the outbox, once every id up to it is final.

    Every event that is committed after this returns has a higher id, also after a crash.
    """
    newest = await run(pool, "newest", outbox.newest)
    if outbox.is_flushed_later:
        await run(pool, "wait_for_flush", wait_for_flush)
    await wait_for_writers(pool)
    return newest
