"""active → runnable or terminal(failed): leases that ran out go back to the pool, up to a cap."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.lifecycle.fence import STANDING
from flowfabric.engine.lifecycle.relinquish import CALLED, RELINQUISH
from flowfabric.engine.lifecycle.terminalize import RUNG, TERMINALIZE

EXPIRE_LEASES: Final[LiteralString] = (
    """
-- lifecycle.expire_leases
WITH seen AS (        -- leases that ran out, passing over rows in use
    SELECT"""
    + STANDING
    + """
      FROM ff.exec_core e
     WHERE e.lifecycle_phase = 'active' AND e.lease_expires_at_ms <= ff.now_ms()
     ORDER BY e.attempt_started_at_ms LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), lost AS (          -- each with its policy's patience
    SELECT seen.*, true AS rotates, 'expired' AS lease_event, NULL::text AS lease_reason,
           NULL::text AS failure_detail,
           seen.lease_reclaim_count >= ff.reclaim_cap(body.policy) AS spent
      FROM seen JOIN ff.exec_body body USING (partition_key, execution_id)
), ending AS (
    SELECT lost.*, 'failed' AS outcome, 'max_reclaims_exceeded' AS failure_reason,
           'infra_crash' AS failure_category, NULL::bytea AS result,
           NULL::text AS cancellation_reason, NULL::text AS cancelled_by
      FROM lost WHERE spent
), leaving AS (
    SELECT lost.*, NULL::bigint AS until_ms, 'waiting_for_worker' AS waiting_for,
           'lease_expired_reclaimable' AS attempt_outcome,
           'attempt_interrupted' AS next_attempt_state, false AS retries, true AS loses,
           NULL::text AS failure_reason, NULL::text AS failure_category
      FROM lost WHERE NOT spent
), """
    + TERMINALIZE
    + """, """
    + RELINQUISH
    + """
SELECT (SELECT count(*) FROM ended) + (SELECT count(*) FROM left_over) AS moved
 WHERE """
    + RUNG
    + """ AND """
    + CALLED
)


async def expire_leases(conn: Connection, limit: int) -> int:
    """Take back at most `limit` lapsed leases; their holders' writes are refused from now on.

    An execution whose leases were lost more often than its policy bears ends as failed with reason
    `max_reclaims_exceeded`, so that one that kills its workers does not go on for ever.
    """
    return (await fetch_one(conn, EXPIRE_LEASES, Moved, limit=limit)).moved
