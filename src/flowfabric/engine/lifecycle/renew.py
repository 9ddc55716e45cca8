"""active → active: the holders of these leases keep them for another `ttl`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.events import record_lease_event
from flowfabric.engine.lifecycle.sql.fence import SEEN, SeenExecution, answers, held_leases, refused
from flowfabric.errors import Refusal, invalid_input
from flowfabric.policy import milliseconds

RENEW: Final[LiteralString] = (
    """
-- lifecycle.renew
"""
    + held_leases()
    + SEEN
    + """, renewed AS (      -- only a lease that is still held
    UPDATE ff.exec_core e
       SET lease_expires_at_ms = ff.now_ms() + %(ttl_ms)s::bigint, last_mutation_at_ms = ff.now_ms()
      FROM seen
     WHERE (e.partition_key, e.execution_id) = (seen.partition_key, seen.execution_id)
       AND seen.holds
 RETURNING seen.*
), renewal_recorded AS ("""
    + record_lease_event("renewed", event_type="'renewed'", where="%(record)s::boolean")
    + """)"""
    + refused("renewed")
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
    unchanged = await fetch_all(
        conn, RENEW, SeenExecution, ttl_ms=milliseconds(ttl), record=record, **fence_columns(leases)
    )
    return answers(leases, unchanged, done=lambda _: None)
