"""Waits for entries that are being written: for a holder whose commit got no answer."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.by_key import execution_row, lease_row
from flowfabric.engine.lifecycle.sql.fence import AppliedCall, answers, held_leases
from flowfabric.errors import Refusal

# Whatever writes entries holds the lease FOR KEY SHARE, or the execution FOR SHARE, until its end.
WAIT_FOR_ENTRIES: Final[LiteralString] = (
    """
-- journal.wait_for_entries
"""
    + held_leases()
    + f"""
SELECT held.ordinal
  FROM held JOIN ff.exec_core e ON {execution_row("held.held_partition", "held.held_execution")}
  JOIN ff.lease l
    ON {lease_row("held.held_partition", "held.held_execution")}
   AND (l.attempt_index, l.lease_epoch, l.lease_id)
     = (held.held_attempt, held.held_epoch, held.held_lease)
 WHERE l.lease_expires_at_ms > ff.now_ms()
   FOR NO KEY UPDATE OF e FOR UPDATE OF l
"""
)


async def wait_for_entries(conn: Connection, lease: Lease) -> Lease | Refusal:
    """Every transaction that has written entries under the lease is over; the lease, if held."""
    rows = await fetch_all(conn, WAIT_FOR_ENTRIES, AppliedCall, **fence_columns([lease]))
    [answer] = await answers(conn, [lease], [row.ordinal for row in rows], done=lambda held: held)
    return answer
