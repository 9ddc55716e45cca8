"""The members of a flow that have not ended are locked."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId

# A statement of its own: rows that changed while it waited for their locks are read by the next.
LOCK_MEMBERS: Final[LiteralString] = """
-- lifecycle.lock_members: those that have not ended, in one order
SELECT execution_id FROM ff.exec_core
 WHERE partition_key = %(partition_key)s AND flow_id = %(flow_id)s AND lifecycle_phase <> 'terminal'
 ORDER BY execution_id FOR NO KEY UPDATE
"""


class LockedMember(msgspec.Struct, frozen=True):
    """A member of the flow."""

    execution_id: UUID


async def lock_members(conn: Connection, partition_key: int, flow_id: UUID) -> list[ExecutionId]:
    """The members that have not ended, locked until the transaction ends."""
    rows = await fetch_all(
        conn, LOCK_MEMBERS, LockedMember, partition_key=partition_key, flow_id=flow_id
    )
    return [ExecutionId(partition_key, row.execution_id) for row in rows]
