"""The row of a flow: every operation that changes the graph locks it first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_all, fetch_maybe
from flowfabric.errors import ExecutionNotInFlow, FlowAlreadyTerminal, NotFound
from flowfabric.ids import ExecutionId
from flowfabric.states import FlowState

LOCK_FLOW: Final[LiteralString] = """
-- flows.lock_flow
SELECT partition_key, flow_id, namespace, public_flow_state, graph_revision, node_count, edge_count
  FROM ff.flow_core WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
   AND (%(namespaces)s::text[] IS NULL OR namespace = ANY (%(namespaces)s::text[]))
   FOR NO KEY UPDATE
"""

GROW_FLOW: Final[LiteralString] = """
-- flows.grow_flow
WITH reopened AS (    -- the summary is projected again, also if it was settled
    UPDATE ff.flow_summary SET public_flow_state = 'open', last_summary_update_at_ms = ff.now_ms()
     WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
)
UPDATE ff.flow_core
   SET node_count = node_count + %(nodes)s::integer, edge_count = edge_count + %(edges)s::integer,
       graph_revision = graph_revision + %(nodes)s::integer + %(edges)s::integer,
       last_mutation_at_ms = ff.now_ms()
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
"""

MEMBERS_AMONG: Final[LiteralString] = """
-- flows.check_members
SELECT execution_id FROM ff.exec_core
 WHERE partition_key = %(partition_key)s AND flow_id = %(flow_id)s
   AND execution_id = ANY (%(execution_id)s::uuid[])
"""


class FlowRow(msgspec.Struct, frozen=True):
    """A flow as it was when it was locked."""

    partition_key: int
    flow_id: UUID
    namespace: str
    public_flow_state: str
    graph_revision: int
    node_count: int
    edge_count: int


class _Member(msgspec.Struct, frozen=True):
    execution_id: UUID


async def lock_flow(
    conn: Connection,
    partition_key: int,
    flow_id: UUID,
    *,
    namespaces: Sequence[str] | None = None,
) -> FlowRow:
    """The open flow, locked until the transaction ends.

    Raises `NotFound(flow)`, also for one in none of the namespaces, and `FlowAlreadyTerminal`.
    """
    flow = await fetch_maybe(
        conn,
        LOCK_FLOW,
        FlowRow,
        partition_key=partition_key,
        flow_id=flow_id,
        namespaces=namespaces,
    )
    if flow is None:
        raise NotFound("flow", flow_id)
    if flow.public_flow_state != FlowState.OPEN:
        raise FlowAlreadyTerminal(flow_id)
    return flow


async def grow_flow(conn: Connection, flow: FlowRow, *, nodes: int = 0, edges: int = 0) -> None:
    """The flow counts so many members and edges more, and each is a new graph revision."""
    await execute(
        conn,
        GROW_FLOW,
        partition_key=flow.partition_key,
        flow_id=flow.flow_id,
        nodes=nodes,
        edges=edges,
    )


async def check_members(conn: Connection, flow: FlowRow, *executions: ExecutionId) -> None:
    """Raises `ExecutionNotInFlow` for the first execution that is not a member."""
    rows = await fetch_all(
        conn,
        MEMBERS_AMONG,
        _Member,
        partition_key=flow.partition_key,
        flow_id=flow.flow_id,
        execution_id=[each.uuid for each in executions],
    )
    found = {row.execution_id for row in rows}
    for each in executions:
        if each.partition_key != flow.partition_key or each.uuid not in found:
            raise ExecutionNotInFlow(each, flow.flow_id)
