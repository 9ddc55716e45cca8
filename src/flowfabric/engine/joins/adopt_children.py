"""Children that existed before a join waited for them count for that join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.flows.flow_row import FlowRow
from flowfabric.engine.joins.apply_decisions import apply_decisions
from flowfabric.engine.joins.resolve_edges import MemberCompletion, resolve_edges
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.errors import ExecutionNotInFlow
from flowfabric.ids import ExecutionId, GroupId

# The children are locked by a statement before this one: they may have ended while that waited.
ADOPT_CHILDREN: Final[LiteralString] = """
-- joins.adopt_children: each with its edge to a join
SELECT c.execution_id, c.flow_id, c.terminal_outcome, e.edge_id,
       coalesce((SELECT max(t.event_id) FROM ff.completion_event t
                  WHERE (t.route_id, t.created_at_ms, t.execution_id, t.partition_key)
                      = (c.route_id, c.created_at_ms, c.execution_id, c.partition_key)), 1)
           AS last_event_id
  FROM ff.exec_core c
  JOIN ff.edge e ON (e.partition_key, e.upstream_eid) = (c.partition_key, c.execution_id)
 WHERE c.partition_key = %(partition_key)s AND c.execution_id = ANY (%(child)s::uuid[])
   AND e.group_id = ANY (%(group_id)s::uuid[])
 ORDER BY c.execution_id
"""


class _Child(msgspec.Struct, frozen=True):
    execution_id: UUID
    flow_id: UUID | None
    terminal_outcome: str
    edge_id: UUID
    last_event_id: int


async def adopt_children(
    conn: Connection, flow: FlowRow, groups: Sequence[GroupId], children: Sequence[ExecutionId]
) -> None:
    """These children count for the joins that their edges lead to; at once if they have ended.

    Needs a transaction. Raises `ExecutionNotInFlow` for a child that does not belong to the flow.
    """
    home = flow.partition_key
    await lock_executions(conn, children)
    rows = await fetch_all(
        conn,
        ADOPT_CHILDREN,
        _Child,
        partition_key=home,
        group_id=[group.uuid for group in groups],
        child=[each.uuid for each in children],
    )
    for row in rows:
        if row.flow_id != flow.flow_id:
            raise ExecutionNotInFlow(ExecutionId(home, row.execution_id), flow.flow_id)
        if row.terminal_outcome != "none":
            completion = MemberCompletion(
                row.last_event_id, home, row.execution_id, row.terminal_outcome
            )
            decisions = await resolve_edges(conn, [completion], only_edge=row.edge_id)
            await apply_decisions(conn, decisions)
