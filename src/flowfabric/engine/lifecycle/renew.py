"""active → active: the holders of these leases keep them for another `ttl`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.fence import HELD, REFUSED, SEEN, Sighting, verdicts
from flowfabric.errors import Refusal, invalid_input
from flowfabric.policy import milliseconds

RENEW: Final[LiteralString] = (
    """
-- lifecycle.renew
"""
    + HELD
    + SEEN
    + """, renewed AS (      -- only a lease that is still theirs
    UPDATE ff.exec_core e
       SET lease_expires_at_ms = ff.now_ms() + %(ttl_ms)s::bigint, last_mutation_at_ms = ff.now_ms()
      FROM seen
     WHERE (e.partition_key, e.execution_id) = (seen.partition_key, seen.execution_id)
       AND seen.holds
 RETURNING seen.*
), told AS (
    INSERT INTO ff.lease_event (
           execution_id, lease_id, route_id, lease_epoch, occurred_at_ms, attempt_index,
           partition_key, event_type, worker_instance_id, tags)
    SELECT execution_id, lease_id, route_id, lease_epoch, ff.now_ms(), attempt_index,
           partition_key, 'renewed', worker_instance_id, nullif(tags, '{}')
      FROM renewed WHERE %(tell)s::boolean
)"""
    + REFUSED
    + "(SELECT ordinal FROM renewed)"
)


async def renew(
    conn: Connection, leases: Sequence[Lease], *, ttl: float | timedelta, tell: bool = False
) -> list[Refusal | None]:
    """Extend every lease that is still held to `ttl` from now; None for each, in the order given.

    A lease that is gone comes back as its `Refusal`; one refusal never spoils its neighbours. With
    `tell` each renewal is written to the lease history.
    """
    if milliseconds(ttl) < 1:
        raise invalid_input("ttl", ttl, "must be positive")
    refused = await fetch_all(
        conn, RENEW, Sighting, ttl_ms=milliseconds(ttl), tell=tell, **fence_columns(leases)
    )
    return verdicts(leases, refused, done=lambda _: None)
