"""active → runnable or terminal(failed): leases of workers whose sessions have ended are voided."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.expire_leases import MOVED, VoidedLease, log_expired
from flowfabric.engine.lifecycle.sql.expire_lease import expire_lease
from flowfabric.engine.lifecycle.sql.fence import HELD_NOW, LOCK_FREE, LOCKED_COLUMNS

LEASES_OF_DEAD: Final[LiteralString] = f"""
    SELECT{LOCKED_COLUMNS}, NULL::integer AS given_cap
      {HELD_NOW} JOIN ff.route r ON r.route_id = e.route_id
     WHERE (SELECT count(*) FROM dead) > 0   -- else no lease is read
       AND l.worker_instance_id = ANY (ARRAY(SELECT worker_instance_id FROM dead))
       AND (r.namespace, l.worker_instance_id) IN (SELECT namespace, worker_instance_id FROM dead)
     ORDER BY l.attempt_started_at_ms LIMIT %(limit)s {LOCK_FREE}"""
"""The leases of the workers in the CTE `dead`, locked, passing over rows in use."""

EXPIRE_LEASES_OF_DEAD: Final[LiteralString] = (
    f"""
-- lifecycle.expire_leases_of_dead
WITH dead AS MATERIALIZED (   -- without their lock now, and when a sweep looked before
    SELECT namespace, worker_instance_id FROM ff.worker_liveness
     WHERE NOT connected AND lock_missed_at_ms <= ff.now_ms() - %(apart_ms)s::bigint
), seen AS ({LEASES_OF_DEAD}
)"""
    + expire_lease("seen", lease_reason="'disconnected'")
    + MOVED
)


async def expire_leases_of_dead(conn: Connection, limit: int, *, apart_ms: int) -> int:
    """Void at most `limit` leases of workers whose session has ended, before their expiry.

    A worker counts as dead if its lock is not held now and was first missed at least `apart_ms`
    ago. A worker that only lost its connection is refused from now on, as after an expired lease;
    the leases count as lost, up to the cap of the policy.
    """
    expired = await fetch_all(
        conn, EXPIRE_LEASES_OF_DEAD, VoidedLease, limit=limit, apart_ms=apart_ms
    )
    for row in expired:
        log_expired(
            row,
            "%s: the lease of worker %s is void: the session of the worker has ended, because its"
            " process died or lost the database; %s",
        )
    return len(expired)
