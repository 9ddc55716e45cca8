"""active → active: an execution that gets children is a member of their flow."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.fence import WITH_LEASE, held_leases, read_seen, refusal
from flowfabric.errors import Refusal

ENSURE_PARENT_FLOW: Final[LiteralString] = (
    """
-- lifecycle.ensure_parent_flow
"""
    + held_leases()
    + f""", seen AS (          -- the execution, locked
    SELECT held.ordinal, e.partition_key, e.execution_id, e.flow_id,
           coalesce(l.lease_expires_at_ms > ff.now_ms()
                    AND (l.attempt_index, l.lease_epoch, l.lease_id)
                      = (held.held_attempt, held.held_epoch, held.held_lease), false) AS holds
      FROM held JOIN ff.exec_core e
        ON (e.partition_key, e.execution_id) = (held.held_partition, held.held_execution)
      {WITH_LEASE}
       FOR NO KEY UPDATE OF e
), joined AS (        -- an execution that was in no flow
    UPDATE ff.exec_core e
       SET flow_id = %(flow_id)s::uuid, last_mutation_at_ms = ff.now_ms()
      FROM seen
     WHERE (e.partition_key, e.execution_id) = (seen.partition_key, seen.execution_id)
       AND seen.holds AND seen.flow_id IS NULL AND %(flow_id)s::uuid IS NOT NULL
 RETURNING e.flow_id
)
SELECT coalesce(seen.flow_id, joined.flow_id) AS flow_id, joined.flow_id IS NOT NULL AS joined
  FROM seen LEFT JOIN joined ON true
 WHERE seen.holds
"""
)


class ParentFlow(msgspec.Struct, frozen=True, kw_only=True):
    """The lease is held, and its execution is locked until the transaction ends."""

    flow_id: UUID | None
    """The flow that the execution belongs to now."""
    joined: bool
    """Did this call put the execution into the flow?"""


class _Row(msgspec.Struct, frozen=True):
    flow_id: UUID | None
    joined: bool


async def ensure_parent_flow(
    conn: Connection, lease: Lease, flow_id: UUID | None
) -> ParentFlow | Refusal:
    """The leased execution is a member of `flow_id`, unless it is in another flow already.

    With None only the lease is checked. A lease that is not held gets its `Refusal`.
    """
    row = await fetch_maybe(
        conn, ENSURE_PARENT_FLOW, _Row, flow_id=flow_id, **fence_columns([lease])
    )
    if row is None:
        [seen] = await read_seen(conn, [lease])
        return refusal(lease, seen)
    return ParentFlow(flow_id=row.flow_id, joined=row.joined)
