"""The queue and the leases are vacuumed before their dead rows slow the claims down.

A claim reads the queue from its first entry, past the entries of rows that were claimed and not
vacuumed yet. Autovacuum looks once a minute, in which a busy fleet claims a million executions.
"""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.faults import translated
from flowfabric.db.rows import Connection, Moved, fetch_one

# Only the owner of a table may vacuum it. Rows that an old transaction may still see stay dead: the
# more there are, the longer is the pause after a vacuum, so that vacuums take a few per cent of one
# core at the most.
QUEUE_HAS_DEAD_ROWS: Final[LiteralString] = """SELECT true FROM pg_class queue
            WHERE queue.oid = 'ff.ready'::regclass AND pg_has_role(queue.relowner, 'USAGE')
              AND pg_stat_get_dead_tuples(queue.oid)
                > %(dead_rows)s::bigint + pg_stat_get_live_tuples(queue.oid) / 20
              AND pg_stat_get_dead_tuples(queue.oid) / 100
                < ff.now_ms() - coalesce(
                      extract(epoch FROM pg_stat_get_last_vacuum_time(queue.oid)) * 1000, 0)"""

DEAD_ROWS: Final = 10_000
"""More dead rows than this, and than a twentieth of the queue, are worth a vacuum."""

VACUUM_QUEUE: Final[LiteralString] = f"""
-- db.vacuum_queue
SELECT count(*) AS moved FROM ({QUEUE_HAS_DEAD_ROWS}) AS due
"""


async def vacuum_queue(conn: Connection, limit: int, *, dead_rows: int = DEAD_ROWS) -> int:
    """Vacuum the queue and the leases if the queue has many dead rows; moves nothing.

    The connection must not be in a transaction then. A table that is being vacuumed is left alone.
    """
    if (await fetch_one(conn, VACUUM_QUEUE, Moved, dead_rows=dead_rows)).moved:
        with translated("-- db.vacuum_queue\n", conn):
            await conn.execute(
                "VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) ff.ready, ff.lease"
            )
    return 0
