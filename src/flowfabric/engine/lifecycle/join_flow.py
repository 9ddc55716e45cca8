"""An execution becomes a member of a flow; its state does not change."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.ids import ExecutionId

JOIN_FLOW: Final[LiteralString] = """
-- lifecycle.join_flow
WITH joined AS (
    UPDATE ff.exec_core
       SET flow_id = %(flow_id)s, last_mutation_at_ms = ff.now_ms()
     WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
 RETURNING 1
), named AS (
    UPDATE ff.exec_body SET member_name = %(member_name)s
     WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
       AND %(member_name)s::text IS NOT NULL
)
SELECT count(*) AS moved FROM joined
"""


async def join_flow(
    conn: Connection, execution_id: ExecutionId, flow_id: UUID, *, member_name: str | None = None
) -> None:
    """The execution is a member of the flow, under `member_name` if one is given."""
    await fetch_one(
        conn,
        JOIN_FLOW,
        Moved,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        flow_id=flow_id,
        member_name=member_name,
    )
