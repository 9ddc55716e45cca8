"""active → runnable or terminal(expired): attempts that take longer than their policy allows."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.lifecycle.signal_holders import MovedLeases, signal_holders
from flowfabric.engine.lifecycle.sql.end import end
from flowfabric.engine.lifecycle.sql.fence import LOCKED_COLUMNS
from flowfabric.engine.lifecycle.sql.requeue import requeue

EXPIRE_ATTEMPTS: Final[LiteralString] = (
    f"""
-- lifecycle.expire_attempts
WITH seen AS (        -- the longest overdue first, passing over rows in use
    SELECT{LOCKED_COLUMNS}
      FROM ff.exec_core e
     WHERE e.attempt_timeout_at_ms <= ff.now_ms() AND e.lifecycle_phase = 'active'
     ORDER BY e.attempt_timeout_at_ms LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), overdue AS (       -- each with what its policy says
    SELECT seen.*, ff.retries_left(body.policy, seen.retry_count) AS retry_allowed,
           ff.retry_delay_ms(body.policy, seen.retry_count, seen.execution_id) AS wait_ms
      FROM seen JOIN ff.exec_body body USING (partition_key, execution_id)
)"""
    + end(
        "overdue",
        where="NOT retry_allowed",
        outcome="'expired'",
        failure_reason="'attempt_timeout'",
        failure_category="'timeout'",
        lease_event="'expired'",
    )
    + requeue(
        "overdue",
        where="retry_allowed",
        until_ms="CASE WHEN wait_ms > 0 THEN ff.now_ms() + wait_ms END",
        waiting_for="'waiting_for_retry_backoff'",
        attempt_outcome="'retry'",
        next_attempt_state="'pending_retry_attempt'",
        counts_as_retry="true",
        failure_reason="'attempt_timeout'",
        failure_category="'timeout'",
        lease_event="'expired'",
    )
    + """
SELECT (SELECT count(*) FROM ended) + (SELECT count(*) FROM requeued) AS moved,
       ARRAY(SELECT worker_instance_id FROM ended
              UNION SELECT worker_instance_id FROM requeued) AS holders
"""
)


async def expire_attempts(conn: Connection, limit: int) -> int:
    """End at most `limit` attempts that have timed out; retried while retries are left.

    Renewing the lease does not extend an attempt: its timeout counts from the claim.
    """
    expired = await fetch_one(conn, EXPIRE_ATTEMPTS, MovedLeases, limit=limit)
    signal_holders(expired.holders)
    return expired.moved
