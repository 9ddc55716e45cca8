"""The members of a flow that have not ended are locked, apart from those in use."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId

# A member may end between the two reads; the caller looks at each once more, now that it is locked.
LOCK_MEMBERS: Final[LiteralString] = """
-- lifecycle.lock_members
WITH unended AS MATERIALIZED (
    SELECT array_agg(partition_key) AS partitions, array_agg(execution_id) AS ids
      FROM ff.exec_core
     WHERE partition_key = %(partition_key)s AND flow_id = %(flow_id)s
       AND lifecycle_phase <> 'terminal'
)
SELECT locked.execution_id, cardinality(unended.ids) AS members
  FROM unended CROSS JOIN LATERAL
       ff.lock_executions(unended.partitions, unended.ids, p_pass_over => true) AS locked
"""

UNENDED_MEMBERS: Final[LiteralString] = """
-- lifecycle.unended_members: not locked
SELECT execution_id FROM ff.exec_core
 WHERE partition_key = %(partition_key)s AND flow_id = %(flow_id)s AND lifecycle_phase <> 'terminal'
 ORDER BY execution_id
"""


class _Member(msgspec.Struct, frozen=True):
    execution_id: UUID


class _Locked(msgspec.Struct, frozen=True):
    execution_id: UUID
    members: int


async def lock_members(
    conn: Connection, partition_key: int, flow_id: UUID
) -> tuple[list[ExecutionId], list[ExecutionId]]:
    """The members that had not ended, locked until the transaction ends; and those in use.

    In use are members that another transaction has locked: this never waits for them.
    """
    where = {"partition_key": partition_key, "flow_id": flow_id}
    rows = await fetch_all(conn, LOCK_MEMBERS, _Locked, **where)
    free = [ExecutionId(partition_key, row.execution_id) for row in rows]
    if rows and len(rows) == rows[0].members:
        return free, []
    in_use = {*await unended_members(conn, partition_key, flow_id)}.difference(free)
    return free, sorted(in_use, key=lambda each: each.uuid)


async def unended_members(conn: Connection, partition_key: int, flow_id: UUID) -> list[ExecutionId]:
    """The members that have not ended, by id, as far as this transaction sees."""
    rows = await fetch_all(
        conn, UNENDED_MEMBERS, _Member, partition_key=partition_key, flow_id=flow_id
    )
    return [ExecutionId(partition_key, row.execution_id) for row in rows]
