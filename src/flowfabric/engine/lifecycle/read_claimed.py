"""What the leases of some claims hold: for a worker that did not get the answer to a claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.sql.lease import LEASED_ROW, Claimed, LeasedRow, claimed

# This reads every lease, and only after an answer was lost; an index by lease_id would make every
# claim write one entry more.
READ_CLAIMED: Final[LiteralString] = f"""
-- lifecycle.read_claimed
WITH leased AS (
    SELECT e.partition_key, e.execution_id, e.route_id, e.flow_id, e.attempt_index, e.lease_epoch,
           e.lease_id, e.tags, e.attempt_type, e.priority, e.created_at_ms,
           e.attempt_timeout_at_ms, e.deadline_at_ms, e.total_attempt_count,
           e.lease_expires_at_ms, e.quota_key_id, body.payload, body.payload_encoding,
           -- a claim leaves the execution as it was
           core.attempt_state = 'attempt_interrupted'
               AND core.attempt_index = held.attempt_index AS goes_on,
           ff.now_ms() AS now_ms
      FROM ff.lease held JOIN ff.execution e USING (partition_key, execution_id)
      JOIN ff.exec_core core USING (partition_key, execution_id)
      JOIN ff.exec_body body USING (partition_key, execution_id)
     WHERE held.lease_id = ANY (%(lease_ids)s::uuid[])
       AND held.worker_instance_id = %(worker_instance_id)s
       AND held.lease_expires_at_ms > ff.now_ms()
)
SELECT{LEASED_ROW},
       leased.lease_id, leased.lease_expires_at_ms - leased.now_ms AS lease_ms
  FROM leased JOIN ff.route route USING (route_id)
 ORDER BY leased.priority DESC, leased.created_at_ms, leased.execution_id
"""


class StillClaimed(Claimed, frozen=True, kw_only=True):
    """A claimed execution, some time after its claim."""

    lease_expires_in: float
    """Seconds until the lease expires, unless it is renewed."""


class _Row(LeasedRow, frozen=True):
    lease_id: UUID
    lease_ms: int


async def read_claimed(
    conn: Connection, lease_ids: Sequence[UUID], *, worker_instance_id: str
) -> list[StillClaimed]:
    """The executions that the process holds under these leases, as `claim` would have given them.

    A claim whose answer was lost may still run on the server: an empty list means only that it has
    not been committed yet. Once a lease is found to hold something, that is all it got.
    """
    rows = await fetch_all(
        conn,
        READ_CLAIMED,
        _Row,
        lease_ids=list(lease_ids),
        worker_instance_id=worker_instance_id,
    )
    return [
        StillClaimed(
            **msgspec.structs.asdict(claimed(row, row.lease_id)),
            lease_expires_in=row.lease_ms / 1000,
        )
        for row in rows
    ]
