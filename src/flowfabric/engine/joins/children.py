"""Children of a running execution, and the joins that wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.faults import SerializationConflict
from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.flows.create_flow import create_flow
from flowfabric.engine.flows.flow_row import FlowRow, grow, locked_flow
from flowfabric.engine.joins.adopt_children import adopt_children
from flowfabric.engine.lifecycle.create_execution import Duplicate, NewExecution, create_execution
from flowfabric.engine.lifecycle.ensure_parent_flow import ParentFlow, ensure_parent_flow
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.errors import ValidationError, invalid_input
from flowfabric.ids import ExecutionId, new_uuid, parent_flow_id
from flowfabric.joins import JoinPolicy, policy_columns

FLOW_KIND: Final = "children"

PARENT: Final[LiteralString] = """
-- joins.children: the parent, not locked yet
SELECT e.flow_id, r.namespace, e.replay_count > 0 AS replayed,
       EXISTS (SELECT FROM ff.edge_group g
                WHERE (g.partition_key, g.downstream_eid) = (%(partition_key)s, %(wait)s)) AS waited
  FROM ff.exec_core e JOIN ff.route r USING (route_id)
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""

ADD_JOINS: Final[LiteralString] = """
-- joins.children: waits and their edges, unless somebody was faster
WITH given AS (       -- each child with the wait that hears of it
    SELECT * FROM unnest(%(wait)s::uuid[], %(edge_id)s::uuid[], %(child)s::uuid[])
        AS given (wait, edge_id, child)
), waited AS (
    INSERT INTO ff.edge_group (
           partition_key, flow_id, downstream_eid, policy_kind, k, on_satisfied, running_count,
           wakes)
    SELECT %(partition_key)s, %(flow_id)s, given.wait, %(policy_kind)s, %(k)s, %(on_satisfied)s,
           count(*), %(execution_id)s
      FROM given GROUP BY given.wait ORDER BY given.wait
        ON CONFLICT DO NOTHING
 RETURNING partition_key, flow_id, downstream_eid
), linked AS (
    INSERT INTO ff.edge (
           partition_key, flow_id, edge_id, upstream_eid, downstream_eid, created_at_ms,
           applied_at_ms, edge_state)
    SELECT waited.partition_key, waited.flow_id, given.edge_id, given.child,
           waited.downstream_eid, ff.now_ms(), ff.now_ms(), 'applied'
      FROM waited JOIN given ON given.wait = waited.downstream_eid
)
SELECT downstream_eid AS wait,
       EXISTS (SELECT FROM ff.exec_core c
                WHERE c.partition_key = %(partition_key)s
                  AND c.execution_id = ANY (%(child)s::uuid[])) AS born_before
  FROM waited
"""


class AddedJoin(msgspec.Struct, frozen=True):
    wait: UUID
    born_before: bool
    """Was any of the children there already?"""


class Parent(msgspec.Struct, frozen=True):
    flow_id: UUID | None
    namespace: str
    replayed: bool
    waited: bool


def check_children(children: Sequence[NewExecution], home: int) -> None:
    ids = {child.execution_id for child in children}
    if not children or len(ids) < len(children):
        raise invalid_input("children", len(children), "must be at least one, and none twice")
    for child in ids:
        if child.partition_key != home:
            raise ValidationError(
                "partition_mismatch", f"execution_id {child} is not in {{fp:{home}}}"
            )


def in_parent_flow(
    children: Sequence[NewExecution], parent: Parent, flow: FlowRow | None
) -> list[NewExecution]:
    flow_id = None if flow is None else flow.flow_id
    return [
        msgspec.structs.replace(child, namespace=parent.namespace, flow_id=flow_id)
        for child in children
    ]


async def lock_parent_flow(
    conn: Connection, parent: ExecutionId, known: Parent, partitions: int
) -> FlowRow:
    """The flow of parent and children, locked."""
    flow_id = known.flow_id
    if flow_id is None:
        flow_id = parent_flow_id(parent, partitions)
        await create_flow(
            conn, flow_id, flow_kind=FLOW_KIND, namespace=known.namespace, partitions=partitions
        )
    return await locked_flow(conn, parent.partition_key, flow_id)


async def add_joins(
    conn: Connection,
    flow: FlowRow,
    parent: ExecutionId,
    policy: JoinPolicy,
    children: Sequence[tuple[UUID, NewExecution]],
) -> list[AddedJoin]:
    """The waits that were not there; each child is given with the one that hears of it."""
    kind, k, on_satisfied = policy_columns(policy)
    return await fetch_all(
        conn,
        ADD_JOINS,
        AddedJoin,
        partition_key=flow.partition_key,
        flow_id=flow.flow_id,
        wait=[wait for wait, _ in children],
        execution_id=parent.uuid,
        policy_kind=kind,
        k=k,
        on_satisfied=on_satisfied,
        edge_id=[new_uuid() for _ in children],
        child=[child.execution_id.uuid for _, child in children],
    )


async def create_children(
    conn: Connection,
    lease: Lease,
    parent: Parent,
    flow: FlowRow,
    children: Sequence[tuple[UUID, NewExecution]],
    added: Sequence[AddedJoin],
    partitions: int,
) -> bool:
    """The children of waits that are new exist; True if some did before, and were adopted."""
    if any(each.born_before for each in added):
        # With their parent, in the order in which everybody locks.
        known = [child.execution_id for _, child in children]
        await lock_executions(conn, [lease.execution_id, *known])
    family = await require_lease(conn, lease, flow.flow_id)
    if family.flow_id != flow.flow_id:
        raise SerializationConflict(f"{lease.execution_id} joined another flow meanwhile")
    born = in_parent_flow([child for _, child in children], parent, flow)
    answers = await create_execution(conn, born, partitions=partitions)
    found = [answer.execution_id for answer in answers if isinstance(answer, Duplicate)]
    new = len(children) - len(found) + family.joined
    await grow(conn, flow, nodes=new, edges=len(children))
    if found:
        await adopt_children(conn, flow, list({wait for wait, _ in children}), found)
    return bool(found)


async def require_lease(conn: Connection, lease: Lease, flow_id: UUID | None) -> ParentFlow:
    """The parent, locked and if need be joined to the flow; raises the `Refusal`."""
    answer = await ensure_parent_flow(conn, lease, flow_id)
    if not isinstance(answer, ParentFlow):
        raise answer
    return answer
