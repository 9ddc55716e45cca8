"""A flow has changed now, though its own row says the same: its members run again."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, execute

TOUCH_FLOW: Final[LiteralString] = """
-- flows.touch_flow
UPDATE ff.flow_core SET last_mutation_at_ms = ff.now_ms()
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
"""


async def touch_flow(conn: Connection, partition_key: int, flow_id: UUID) -> None:
    """Who has read the flow before has read an old version; the flow is locked."""
    await execute(conn, TOUCH_FLOW, partition_key=partition_key, flow_id=flow_id)
