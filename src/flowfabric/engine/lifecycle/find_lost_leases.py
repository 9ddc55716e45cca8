"""Which of these leases were ended by a decision elsewhere; nothing is written or locked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.fence import SEEN_COLUMNS, SeenExecution, held_leases, refusal
from flowfabric.errors import Refusal

# Every decision that voids a lease bumps its epoch. An execution that is not active under the epoch
# of the lease was given up by its holder, whose own call answers that.
FIND_LOST_LEASES: Final[LiteralString] = (
    """
-- lifecycle.find_lost_leases
"""
    + held_leases()
    + f"""
SELECT {SEEN_COLUMNS}
  FROM held LEFT JOIN ff.execution e
    ON (e.partition_key, e.execution_id) = (held.held_partition, held.held_execution)
 WHERE e.execution_id IS NULL OR e.lease_epoch <> held.held_epoch
    OR e.lease_id IS DISTINCT FROM held.held_lease OR e.lease_expires_at_ms <= ff.now_ms()
"""
)


async def find_lost_leases(conn: Connection, leases: Sequence[Lease]) -> list[Refusal | None]:
    """For each lease the `Refusal` that its renewal would get; None if it is held, in order.

    None also for a lease that its own holder gave up. Does not wait for locks, and extends nothing.
    """
    rows = await fetch_all(conn, FIND_LOST_LEASES, SeenExecution, **fence_columns(leases))
    lost = {row.ordinal: row for row in rows}
    return [
        refusal(lease, lost[number]) if number in lost else None
        for number, lease in enumerate(leases, 1)
    ]
