"""Flows that were never given a member are deleted."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.policy import DEFAULT_RETENTION, milliseconds

DELETE_EMPTY_FLOWS: Final[LiteralString] = """
-- flows.delete_empty_flows
WITH empty AS (       -- the longest unchanged first, passing over rows in use
    SELECT partition_key, flow_id FROM ff.flow_core
     WHERE node_count = 0 AND last_mutation_at_ms <= ff.now_ms() - %(kept_ms)s::bigint
     ORDER BY last_mutation_at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), summaries_deleted AS (
    DELETE FROM ff.flow_summary s USING empty
     WHERE (s.partition_key, s.flow_id) = (empty.partition_key, empty.flow_id)
), deleted AS (
    DELETE FROM ff.flow_core f USING empty
     WHERE (f.partition_key, f.flow_id) = (empty.partition_key, empty.flow_id)
 RETURNING 1
)
SELECT count(*) AS moved FROM deleted
"""


async def delete_empty_flows(conn: Connection, limit: int) -> int:
    """Delete at most `limit` flows without members, unchanged for the default retention."""
    return (
        await fetch_one(
            conn,
            DELETE_EMPTY_FLOWS,
            Moved,
            limit=limit,
            kept_ms=milliseconds(DEFAULT_RETENTION),
        )
    ).moved
