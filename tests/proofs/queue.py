"""How `ff.ready` and `ff.lease` belong to `ff.exec_core` and to the limits of executions."""

from __future__ import annotations

from typing import Final

from flowfabric.db.rows import Connection

QUEUE: Final = {
    "who waits for a worker is queued or leased, once, and nobody else is": """
        SELECT execution_id FROM ff.exec_core e FULL JOIN (
               SELECT partition_key, execution_id, count(*) AS times
                 FROM (SELECT partition_key, execution_id FROM ff.ready
                        UNION ALL
                       SELECT partition_key, execution_id FROM ff.lease) AS listed
                GROUP BY partition_key, execution_id) AS place USING (partition_key, execution_id)
         WHERE coalesce(place.times, 0)
            <> coalesce((e.eligibility_state = 'eligible_now')::integer, 0)""",
    "who is queued is queued as what it is": """
        SELECT execution_id FROM ff.ready r JOIN ff.exec_core e USING (partition_key, execution_id)
         WHERE (r.route_id, r.priority, r.created_at_ms, r.deadline_at_ms)
            IS DISTINCT FROM (e.route_id, e.priority, e.created_at_ms, e.deadline_at_ms)""",
    "a lease has the epoch after that of its execution": """
        SELECT execution_id FROM ff.lease l JOIN ff.exec_core e USING (partition_key, execution_id)
         WHERE l.lease_epoch <> e.lease_epoch + 1""",
}
"""True after every transaction."""

LIMITED: Final = {
    "no more of a key are leased than its limit allows": """
        SELECT quota_key_id FROM ff.lease l JOIN ff.quota_key q USING (quota_key_id)
          JOIN ff.quota_policy p USING (quota_policy_id)
         WHERE p.active_concurrency_cap > 0
         GROUP BY quota_key_id, p.active_concurrency_cap
        HAVING count(*) > p.active_concurrency_cap""",
    "no more of a key start in a window than its limit allows": """
        SELECT quota_key_id FROM ff.quota_window w JOIN ff.quota_key q USING (quota_key_id)
          JOIN ff.quota_policy p USING (quota_policy_id)
         WHERE p.max_requests_per_window > 0 AND w.admitted_at_ms > ff.now_ms() - p.window_ms
         GROUP BY quota_key_id, p.max_requests_per_window
        HAVING count(*) > p.max_requests_per_window""",
    "who is held back while its limit has room is noted": """
        SELECT q.quota_key_id
          FROM ff.quota_key q JOIN ff.quota_policy p USING (quota_policy_id)
         WHERE EXISTS (SELECT FROM ff.exec_core e WHERE e.quota_key_id = q.quota_key_id
                          AND e.exceptional_state = 'blocked_by_quota')
           AND (SELECT count(*) FROM ff.ready r WHERE r.quota_key_id = q.quota_key_id) < least(
               p.active_concurrency_cap - (
                   SELECT count(*) FROM ff.lease l WHERE l.quota_key_id = q.quota_key_id)
                   + CASE p.active_concurrency_cap WHEN 0 THEN 1000000 ELSE 0 END,
               p.max_requests_per_window - (
                   SELECT count(*) FROM ff.quota_window w WHERE w.quota_key_id = q.quota_key_id
                      AND w.admitted_at_ms > ff.now_ms() - p.window_ms)
                   + CASE p.max_requests_per_window WHEN 0 THEN 1000000 ELSE 0 END)
           AND (q.next_at_ms IS NULL OR q.next_at_ms > ff.now_ms())
           AND NOT EXISTS (SELECT FROM ff.quota_wakeup n
                            WHERE n.quota_key_id = q.quota_key_id)""",
}
"""True whenever the worker that gave up a lease has let the next of its limit go."""

BROKEN: Final = " UNION ALL ".join(
    f"SELECT '{claim}' AS claim WHERE EXISTS ({sql})" for claim, sql in (QUEUE | LIMITED).items()
)
"""One row for each claim that does not hold."""


async def broken_queue(db: Connection) -> tuple[str, ...]:
    """What does not hold."""
    return tuple(row["claim"] for row in await db.fetch(BROKEN))
