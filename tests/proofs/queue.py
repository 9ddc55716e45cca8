"""How `ff.ready` and `ff.lease` belong to `ff.exec_core`: true after every transaction."""

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

BROKEN: Final = " UNION ALL ".join(
    f"SELECT '{claim}' AS claim WHERE EXISTS ({sql})" for claim, sql in QUEUE.items()
)
"""One row for each claim that does not hold."""


async def broken_queue(db: Connection) -> tuple[str, ...]:
    """What does not hold."""
    return tuple(row["claim"] for row in await db.fetch(BROKEN))
