"""The members of a flow that have not ended are locked, apart from those in use."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId

# A statement of its own: a row that changed before it was locked is read again by the next.
LOCK_MEMBERS: Final[LiteralString] = """
-- lifecycle.lock_members: those that have not ended, passing over rows in use
SELECT execution_id FROM ff.exec_core
 WHERE partition_key = %(partition_key)s AND flow_id = %(flow_id)s AND lifecycle_phase <> 'terminal'
 ORDER BY execution_id FOR NO KEY UPDATE SKIP LOCKED
"""

UNENDED_MEMBERS: Final[LiteralString] = """
-- lifecycle.unended_members: not locked
SELECT execution_id FROM ff.exec_core
 WHERE partition_key = %(partition_key)s AND flow_id = %(flow_id)s AND lifecycle_phase <> 'terminal'
 ORDER BY execution_id
"""


class LockedMember(msgspec.Struct, frozen=True):
    """A member of the flow."""

    execution_id: UUID


async def lock_members(conn: Connection, partition_key: int, flow_id: UUID) -> list[ExecutionId]:
    """The members that have not ended, locked until the transaction ends.

    Members that another transaction has locked are left out; this never waits for them.
    """
    rows = await fetch_all(
        conn, LOCK_MEMBERS, LockedMember, partition_key=partition_key, flow_id=flow_id
    )
    return [ExecutionId(partition_key, row.execution_id) for row in rows]


async def unended_members(conn: Connection, partition_key: int, flow_id: UUID) -> list[ExecutionId]:
    """The members that have not ended, by id, as far as this transaction sees."""
    rows = await fetch_all(
        conn, UNENDED_MEMBERS, LockedMember, partition_key=partition_key, flow_id=flow_id
    )
    return [ExecutionId(partition_key, row.execution_id) for row in rows]
