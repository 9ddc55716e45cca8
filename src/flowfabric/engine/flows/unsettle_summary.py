"""The summaries of flows are open again, so that the projector looks at their members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, execute

UNSETTLE_SUMMARY: Final[LiteralString] = """
-- flows.unsettle_summaries
WITH locked AS (      -- in one order
    SELECT s.partition_key, s.flow_id FROM ff.flow_summary s
      JOIN unnest(%(partition_key)s::smallint[], %(flow_id)s::uuid[])
           AS named (partition_key, flow_id) USING (partition_key, flow_id)
     ORDER BY s.partition_key, s.flow_id FOR NO KEY UPDATE OF s
)
UPDATE ff.flow_summary s SET public_flow_state = 'open', last_summary_update_at_ms = ff.now_ms()
  FROM locked WHERE (s.partition_key, s.flow_id) = (locked.partition_key, locked.flow_id)
"""


async def unsettle_summaries(conn: Connection, flows: Sequence[tuple[int, UUID]]) -> None:
    """The flows count as open until their summaries are projected again."""
    await execute(
        conn,
        UNSETTLE_SUMMARY,
        partition_key=[partition_key for partition_key, _ in flows],
        flow_id=[flow_id for _, flow_id in flows],
    )
