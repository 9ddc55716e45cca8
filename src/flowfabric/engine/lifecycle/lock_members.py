"""The members of a flow that have not ended are locked, apart from those in use."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.ids import ExecutionId

UNENDED_MEMBERS: Final[LiteralString] = """
-- lifecycle.unended_members: not locked
SELECT execution_id FROM ff.exec_core
 WHERE partition_key = %(partition_key)s AND flow_id = %(flow_id)s AND lifecycle_phase <> 'terminal'
 ORDER BY execution_id
"""


class _Member(msgspec.Struct, frozen=True):
    execution_id: UUID


async def lock_members(conn: Connection, partition_key: int, flow_id: UUID) -> list[ExecutionId]:
    """The members that had not ended, locked until the transaction ends.

    Members that another transaction has locked are left out; this never waits for them.
    """
    unended = await unended_members(conn, partition_key, flow_id)
    return await lock_executions(conn, unended, pass_over_locked=True)


async def unended_members(conn: Connection, partition_key: int, flow_id: UUID) -> list[ExecutionId]:
    """The members that have not ended, by id, as far as this transaction sees."""
    rows = await fetch_all(
        conn, UNENDED_MEMBERS, _Member, partition_key=partition_key, flow_id=flow_id
    )
    return [ExecutionId(partition_key, row.execution_id) for row in rows]
