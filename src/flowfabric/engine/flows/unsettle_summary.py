"""The summary of a flow is open again, so that the projector looks at its members."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, execute

UNSETTLE_SUMMARY: Final[LiteralString] = """
-- flows.unsettle_summary
UPDATE ff.flow_summary SET public_flow_state = 'open', last_summary_update_at_ms = ff.now_ms()
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
"""


async def unsettle_summary(conn: Connection, partition_key: int, flow_id: UUID) -> None:
    """The flow counts as open until its summary is projected again."""
    await execute(conn, UNSETTLE_SUMMARY, partition_key=partition_key, flow_id=flow_id)
