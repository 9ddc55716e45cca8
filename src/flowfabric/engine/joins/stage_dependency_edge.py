"""An edge is part of a flow's graph; it gates nothing until it is applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_one
from flowfabric.engine.flows.edge import existing_edge
from flowfabric.engine.flows.flow_row import check_members, grow_flow, lock_flow
from flowfabric.errors import (
    CycleDetected,
    DependencyAlreadyExists,
    SelfReferencingEdge,
    StaleGraphRevision,
    invalid_input,
)
from flowfabric.ids import ExecutionId, member_group_id, storable_text, uuid_partition

KIND: Final = "success_only"
MAX_NODES: Final = 100_000

# The flow row is locked: no other transaction adds an edge meanwhile.
REACHES: Final[LiteralString] = """
-- joins.stage_dependency_edge: can the upstream be reached from the downstream?
WITH RECURSIVE reached (execution_id) AS (
    SELECT %(downstream)s::uuid
     UNION
    SELECT g.waiter_eid
      FROM reached
     CROSS JOIN LATERAL (  -- driven by the members that were reached
           SELECT e.group_id FROM ff.edge e
            WHERE (e.partition_key, e.upstream_eid) = (%(partition_key)s, reached.execution_id)
           OFFSET 0) AS e
     CROSS JOIN LATERAL (
           SELECT g.waiter_eid FROM ff.edge_group g
            WHERE (g.partition_key, g.group_id) = (%(partition_key)s, e.group_id)
              AND g.waits_as = 'member' OFFSET 0) AS g
), bounded AS (
    SELECT execution_id FROM reached LIMIT %(max_nodes)s + 1
)
SELECT count(*) AS nodes, coalesce(bool_or(execution_id = %(upstream)s), false) AS closes,
       (SELECT count(*) FROM ff.edge e
         WHERE (e.partition_key, e.group_id)
             = (%(partition_key)s, %(group_id)s)) AS inbound,
       (SELECT g.expected_n FROM ff.edge_group g
         WHERE (g.partition_key, g.group_id)
             = (%(partition_key)s, %(group_id)s)) AS expected_n
  FROM bounded
"""

STAGE: Final[LiteralString] = """
-- joins.stage_dependency_edge
WITH joined AS (      -- the first edge to a member makes its join
    INSERT INTO ff.edge_group (partition_key, group_id, flow_id, waiter_eid, waits_as)
    VALUES (%(partition_key)s, %(group_id)s, %(flow_id)s, %(downstream)s, 'member')
        ON CONFLICT DO NOTHING
)
INSERT INTO ff.edge (
       partition_key, flow_id, edge_id, upstream_eid, group_id, created_at_ms, data_passing_ref)
VALUES (%(partition_key)s, %(flow_id)s, %(edge_id)s, %(upstream)s, %(group_id)s, ff.now_ms(),
        %(data_passing_ref)s)
"""


class EdgeStaged(msgspec.Struct, frozen=True, kw_only=True):
    """The edge is part of the graph, which has this revision now."""

    edge_id: UUID
    new_graph_revision: int


class _Reach(msgspec.Struct, frozen=True):
    nodes: int
    closes: bool
    inbound: int
    expected_n: int | None


async def stage_dependency_edge(
    conn: Connection,
    flow_id: UUID,
    edge_id: UUID,
    upstream: ExecutionId,
    downstream: ExecutionId,
    *,
    expected_graph_revision: int,
    dependency_kind: str = KIND,
    data_passing_ref: str | None = None,
    namespaces: Sequence[str] | None = None,
    partitions: int = 256,
) -> EdgeStaged:
    """The edge is part of the graph, and the revision is one higher; needs a transaction.

    Raises, in this order: `SelfReferencingEdge`, `ValidationError` (another kind than
    success_only), `NotFound(flow)`, `FlowAlreadyTerminal`, `StaleGraphRevision`,
    `ExecutionNotInFlow`, `CycleDetected`, `DependencyAlreadyExists` with the edge that is there,
    and `ValidationError` if the join expects no more edges.
    """
    if upstream == downstream:
        raise SelfReferencingEdge(upstream)
    if dependency_kind != KIND:
        raise invalid_input("dependency_kind", dependency_kind, f"must be {KIND}")
    if data_passing_ref is not None:
        storable_text(data_passing_ref, field="data_passing_ref")
    home = uuid_partition(flow_id, partitions)
    flow = await lock_flow(conn, home, flow_id, namespaces=namespaces)
    if flow.graph_revision != expected_graph_revision:
        raise StaleGraphRevision(
            flow_id, expected=expected_graph_revision, current=flow.graph_revision
        )
    await check_members(conn, flow, upstream, downstream)
    between = {
        "partition_key": flow.partition_key,
        "upstream": upstream.uuid,
        "downstream": downstream.uuid,
        "group_id": member_group_id(downstream).uuid,
    }
    reach = await fetch_one(conn, REACHES, _Reach, max_nodes=MAX_NODES, **between)
    if reach.closes:
        raise CycleDetected(flow_id, upstream)
    if reach.nodes > MAX_NODES:
        raise invalid_input("flow_id", str(flow_id), "graph_too_large to look for cycles")
    existing = await existing_edge(conn, flow_id, edge_id, upstream, downstream)
    if existing is not None:
        raise DependencyAlreadyExists(existing, existing.edge_id)
    if reach.expected_n is not None and reach.inbound >= reach.expected_n:
        raise invalid_input(
            "downstream", str(downstream), f"expects {reach.expected_n} edges and has them"
        )
    await execute(
        conn,
        STAGE,
        flow_id=flow_id,
        edge_id=edge_id,
        data_passing_ref=data_passing_ref,
        **between,
    )
    await grow_flow(conn, flow, edges=1)
    return EdgeStaged(edge_id=edge_id, new_graph_revision=flow.graph_revision + 1)
