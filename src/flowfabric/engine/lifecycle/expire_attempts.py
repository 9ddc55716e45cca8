"""active → runnable or terminal(expired): attempts that took longer than their policy allows."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.lifecycle.sql.end import RUNG, TERMINALIZE
from flowfabric.engine.lifecycle.sql.fence import STANDING
from flowfabric.engine.lifecycle.sql.requeue import CALLED, RELINQUISH

EXPIRE_ATTEMPTS: Final[LiteralString] = (
    """
-- lifecycle.expire_attempts
WITH seen AS (        -- the longest overdue first, passing over rows in use
    SELECT"""
    + STANDING
    + """
      FROM ff.exec_core e
     WHERE e.attempt_timeout_at_ms <= ff.now_ms() AND e.lifecycle_phase = 'active'
     ORDER BY e.attempt_timeout_at_ms LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), overdue AS (       -- each with what its policy says
    SELECT seen.*, true AS rotates, 'expired' AS lease_event, NULL::text AS lease_reason,
           'attempt_timeout' AS failure_reason, 'timeout' AS failure_category,
           NULL::text AS failure_detail,
           ff.retries_left(body.policy, seen.retry_count) AS retries,
           ff.retry_delay_ms(body.policy, seen.retry_count, seen.execution_id) AS wait_ms
      FROM seen JOIN ff.exec_body body USING (partition_key, execution_id)
), ending AS (
    SELECT overdue.*, 'expired' AS outcome, NULL::bytea AS result,
           NULL::text AS cancellation_reason, NULL::text AS cancelled_by
      FROM overdue WHERE NOT retries
), leaving AS (
    SELECT overdue.*, CASE WHEN wait_ms > 0 THEN ff.now_ms() + wait_ms END AS until_ms,
           'waiting_for_retry_backoff' AS waiting_for, 'retry' AS attempt_outcome,
           'pending_retry_attempt' AS next_attempt_state, false AS loses
      FROM overdue WHERE retries
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


async def expire_attempts(conn: Connection, limit: int) -> int:
    """End at most `limit` attempts that are over their time; retried while retries are left.

    A renewed lease does not help: the time of an attempt counts from its claim.
    """
    return (await fetch_one(conn, EXPIRE_ATTEMPTS, Moved, limit=limit)).moved
