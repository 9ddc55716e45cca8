"""The summaries of flows that have not settled are computed again from their members."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.flows.summary import PROJECTED

PROJECT_UNSETTLED: Final[LiteralString] = (
    """
-- flows.project_unsettled
WITH wanted AS (      -- the longest unchanged first, each at most every `every_ms`
    SELECT partition_key, flow_id FROM ff.flow_summary
     WHERE public_flow_state IN ('open', 'running', 'blocked')
       AND last_summary_update_at_ms <= ff.now_ms() - %(every_ms)s::bigint
     ORDER BY last_summary_update_at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)"""
    + PROJECTED
)

EVERY_MS: Final = 10_000
"""A summary is projected at most this often."""


async def project_unsettled(conn: Connection, limit: int) -> int:
    """Project at most `limit` summaries of flows that have not settled."""
    return (
        await fetch_one(
            conn, PROJECT_UNSETTLED, Moved, limit=limit, every_ms=EVERY_MS, even_empty=True
        )
    ).moved
