"""active → active: the holders of these leases keep them for another `ttl`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, LiteralString

from flowfabric.counters import LEASE_RENEWALS
from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.by_key import lease_row
from flowfabric.engine.lifecycle.sql.events import record_lease_event
from flowfabric.engine.lifecycle.sql.fence import (
    AppliedCall,
    answers,
    held_leases,
)
from flowfabric.errors import Refusal, invalid_input
from flowfabric.policy import milliseconds

# Only ff.lease is locked, in the order of the ids. A lease that has ended has no row there.
RENEW: Final[LiteralString] = (
    """
-- lifecycle.renew
"""
    + held_leases()
    + """, ordered AS (
    SELECT * FROM held ORDER BY held_partition, held_execution
), renewed AS (      -- only a lease that is still held
    UPDATE ff.lease l
       SET lease_expires_at_ms = ff.now_ms() + %(ttl_ms)s::bigint, last_mutation_at_ms = ff.now_ms()
      FROM ordered
     WHERE """
    + lease_row("ordered.held_partition", "ordered.held_execution")
    + """
       AND (l.attempt_index, l.lease_epoch, l.lease_id)
         = (ordered.held_attempt, ordered.held_epoch, ordered.held_lease)
       AND l.lease_expires_at_ms > ff.now_ms()
 RETURNING ordered.ordinal, l.partition_key, l.execution_id, l.attempt_index, l.lease_epoch,
           l.lease_id, l.worker_instance_id
), recorded AS (
    SELECT renewed.*, e.route_id, e.tags
      FROM renewed JOIN ff.exec_core e USING (partition_key, execution_id)
     WHERE %(record)s::boolean
), renewal_recorded AS ("""
    + record_lease_event("recorded", event_type="'renewed'")
    + """)
SELECT ordinal FROM renewed
"""
)


async def renew(
    conn: Connection, leases: Sequence[Lease], *, ttl: float | timedelta, record: bool = False
) -> list[Refusal | None]:
    """Extend every lease that is still held to `ttl` from now; None for each, in the order given.

    A lease that is not held any more gets its `Refusal`, without effect on the others. With
    `record` each renewal is written to the lease history.
    """
    if milliseconds(ttl) < 1:
        raise invalid_input("ttl", ttl, "must be positive")
    renewed = await fetch_all(
        conn, RENEW, AppliedCall, ttl_ms=milliseconds(ttl), record=record, **fence_columns(leases)
    )
    if renewed:
        LEASE_RENEWALS.add("ok", count=len(renewed))
    if len(renewed) < len(leases):
        LEASE_RENEWALS.add("err", count=len(leases) - len(renewed))
    return await answers(conn, leases, [row.ordinal for row in renewed], done=lambda _: None)
