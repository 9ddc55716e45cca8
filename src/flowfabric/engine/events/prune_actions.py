"""Old operator events that belong to no execution are deleted; others go with the execution."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.policy import milliseconds

KEPT: Final = timedelta(days=30)

PRUNE_ACTIONS: Final[LiteralString] = """
-- events.prune_actions
WITH old AS (
    SELECT event_id, partition_key FROM ff.operator_event
     WHERE execution_id IS NULL AND occurred_at_ms <= ff.now_ms() - %(kept_ms)s::bigint
     ORDER BY occurred_at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM ff.operator_event e USING old
     WHERE (e.event_id, e.partition_key) = (old.event_id, old.partition_key) RETURNING 1
)
SELECT count(*) AS moved FROM deleted
"""


async def prune_actions(conn: Connection, limit: int) -> int:
    """Delete at most `limit` events that are older than `KEPT` and belong to no execution."""
    return (
        await fetch_one(conn, PRUNE_ACTIONS, Moved, limit=limit, kept_ms=milliseconds(KEPT))
    ).moved
