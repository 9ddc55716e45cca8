"""A staged edge begins to gate its downstream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all, fetch_maybe, fetch_one
from flowfabric.engine.joins.apply_decisions import apply_decisions
from flowfabric.engine.joins.evaluate_join import evaluate_join
from flowfabric.engine.joins.resolve_edges import MemberCompletion, resolve_edges
from flowfabric.engine.lifecycle.hold_dependents import hold_dependents
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.errors import ExecutionAlreadyInFlow, FlowAlreadyTerminal, NotFound, ValidationError
from flowfabric.ids import ExecutionId, GroupId, uuid_partition
from flowfabric.states import EdgeState, FlowState, GroupState, LifecyclePhase

# The flow first, then the join, then the edge: the order in which every operation locks.
LOCK_FLOW: Final[LiteralString] = """
-- joins.apply_dependency_to_child: the flow
SELECT f.public_flow_state
  FROM ff.flow_core f WHERE (f.partition_key, f.flow_id) = (%(partition_key)s, %(flow_id)s)
   FOR SHARE
"""

ENDPOINTS: Final[LiteralString] = """
-- joins.apply_dependency_to_child: the edge as it was staged
SELECT e.upstream_eid, e.group_id, g.waiter_eid
  FROM ff.edge e JOIN ff.edge_group g USING (partition_key, group_id)
  JOIN ff.flow_core f ON (f.partition_key, f.flow_id) = (e.partition_key, e.flow_id)
 WHERE (e.partition_key, e.flow_id, e.edge_id) = (%(partition_key)s, %(flow_id)s, %(edge_id)s)
   AND (%(namespaces)s::text[] IS NULL OR f.namespace = ANY (%(namespaces)s::text[]))
"""

LOCK_GROUP: Final[LiteralString] = """
-- joins.apply_dependency_to_child: the join
SELECT policy_kind, group_state, expected_n FROM ff.edge_group
 WHERE (partition_key, group_id) = (%(partition_key)s, %(group_id)s)
   FOR NO KEY UPDATE
"""

LOCK_EDGE: Final[LiteralString] = """
-- joins.apply_dependency_to_child: the edge
SELECT edge_state FROM ff.edge
 WHERE (partition_key, flow_id, edge_id) = (%(partition_key)s, %(flow_id)s, %(edge_id)s)
   FOR NO KEY UPDATE
"""

READ_BOTH: Final[LiteralString] = """
-- joins.apply_dependency_to_child: both ends
SELECT e.execution_id, e.flow_id, e.lifecycle_phase, e.terminal_outcome
  FROM ff.execution e
 WHERE e.partition_key = %(partition_key)s AND e.execution_id = ANY (%(execution_id)s::uuid[])
 ORDER BY e.execution_id
"""

# A statement of its own: the upstream may have ended while the one before waited for its lock.
LAST_COMPLETION: Final[LiteralString] = """
-- joins.apply_dependency_to_child: the upstream's last completion
SELECT coalesce(max(c.event_id), 1) AS event_id
  FROM ff.exec_core e JOIN ff.completion_event c
    ON (c.route_id, c.created_at_ms, c.execution_id, c.partition_key)
     = (e.route_id, e.created_at_ms, e.execution_id, e.partition_key)
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""

APPLY: Final[LiteralString] = """
-- joins.apply_dependency_to_child
WITH applied AS (
    UPDATE ff.edge SET edge_state = 'applied', applied_at_ms = ff.now_ms()
     WHERE (partition_key, flow_id, edge_id) = (%(partition_key)s, %(flow_id)s, %(edge_id)s)
), counted AS (       -- a satisfied all-of whose member has not begun waits again
    UPDATE ff.edge_group
       SET running_count = running_count + 1,
           group_state = CASE WHEN %(reopens)s THEN 'pending' ELSE group_state END,
           fired_at_ms = CASE WHEN %(reopens)s THEN NULL ELSE fired_at_ms END
     WHERE (partition_key, group_id) = (%(partition_key)s, %(group_id)s)
 RETURNING running_count
)
SELECT running_count AS unsatisfied_count FROM counted
"""

UNRESOLVED: Final[LiteralString] = """
-- joins.apply_dependency_to_child: how many edges are unresolved
SELECT running_count AS unsatisfied_count FROM ff.edge_group
 WHERE (partition_key, group_id) = (%(partition_key)s, %(group_id)s)
"""


class EdgeApplied(msgspec.Struct, frozen=True, kw_only=True):
    """The edge gates its downstream; so many edges of the join are unresolved."""

    edge_id: UUID
    unsatisfied_count: int


class EdgeAlreadyApplied(msgspec.Struct, frozen=True, kw_only=True):
    """The edge gated its downstream before; nothing changed."""

    edge_id: UUID


class _Endpoints(msgspec.Struct, frozen=True):
    upstream_eid: UUID
    group_id: UUID
    waiter_eid: UUID


class _Flow(msgspec.Struct, frozen=True):
    public_flow_state: str


class _Group(msgspec.Struct, frozen=True):
    policy_kind: str
    group_state: str
    expected_n: int | None


class _Edge(msgspec.Struct, frozen=True):
    edge_state: str


class _Member(msgspec.Struct, frozen=True):
    execution_id: UUID
    flow_id: UUID | None
    lifecycle_phase: str
    terminal_outcome: str


class _LastCompletion(msgspec.Struct, frozen=True):
    event_id: int


class _Unresolved(msgspec.Struct, frozen=True):
    unsatisfied_count: int


async def apply_dependency_to_child(
    conn: Connection,
    flow_id: UUID,
    edge_id: UUID,
    *,
    upstream: ExecutionId | None = None,
    downstream: ExecutionId | None = None,
    namespaces: Sequence[str] | None = None,
    partitions: int = 256,
) -> EdgeApplied | EdgeAlreadyApplied:
    """The downstream waits for the upstream; needs a transaction.

    An upstream that has ended resolves the edge at once. A downstream that runs or is suspended is
    not blocked; the edge only counts. Raises `NotFound` (edge, execution), `FlowAlreadyTerminal`,
    `ExecutionAlreadyInFlow`, and `ValidationError(invalid_dependency)` for endpoints that are not
    the edge's and for a downstream that has ended.
    """
    home = uuid_partition(flow_id, partitions)
    edge = {"partition_key": home, "flow_id": flow_id, "edge_id": edge_id}
    ends = await fetch_maybe(conn, ENDPOINTS, _Endpoints, namespaces=namespaces, **edge)
    if ends is None:
        raise NotFound("edge", edge_id)
    source, target = ExecutionId(home, ends.upstream_eid), ExecutionId(home, ends.waiter_eid)
    if upstream not in (None, source) or downstream not in (None, target):
        raise ValidationError("invalid_dependency", f"edge {edge_id} leads {source} → {target}")
    flow = await fetch_one(conn, LOCK_FLOW, _Flow, partition_key=home, flow_id=flow_id)
    of_group = {"partition_key": home, "group_id": ends.group_id}
    group = await fetch_one(conn, LOCK_GROUP, _Group, **of_group)
    if (await fetch_one(conn, LOCK_EDGE, _Edge, **edge)).edge_state == EdgeState.APPLIED:
        return EdgeAlreadyApplied(edge_id=edge_id)
    if flow.public_flow_state != FlowState.OPEN:
        raise FlowAlreadyTerminal(flow_id)
    above, below = await _members(conn, flow_id, source, target)
    if below.lifecycle_phase == LifecyclePhase.TERMINAL:
        raise ValidationError("invalid_dependency", f"downstream_terminal: {target} has ended")
    waits = below.lifecycle_phase == LifecyclePhase.RUNNABLE
    reopens = waits and group.policy_kind == "all_of" and group.group_state == GroupState.SATISFIED
    await fetch_one(conn, APPLY, _Unresolved, reopens=reopens, **(edge | of_group))
    if waits and (reopens or group.group_state == GroupState.PENDING):
        await hold_dependents(conn, [target])
    if above.lifecycle_phase == LifecyclePhase.TERMINAL:
        last = await fetch_one(
            conn, LAST_COMPLETION, _LastCompletion, partition_key=home, execution_id=source.uuid
        )
        completion = MemberCompletion(
            last.event_id, home, above.execution_id, above.terminal_outcome
        )
        # A join that expects more edges is decided by the last of them, with the earliest success.
        decides = group.expected_n is None
        resolved = await resolve_edges(conn, [completion], only_edge=edge_id, decides=decides)
        await apply_decisions(conn, resolved)
    await apply_decisions(conn, await evaluate_join(conn, GroupId(home, ends.group_id)))
    left = await fetch_one(conn, UNRESOLVED, _Unresolved, **of_group)
    return EdgeApplied(edge_id=edge_id, unsatisfied_count=left.unsatisfied_count)


async def _members(
    conn: Connection, flow_id: UUID, source: ExecutionId, target: ExecutionId
) -> tuple[_Member, _Member]:
    locked = await lock_executions(conn, [source, target])
    rows = await fetch_all(
        conn,
        READ_BOTH,
        _Member,
        partition_key=source.partition_key,
        execution_id=[each.uuid for each in locked],
    )
    found = {row.execution_id: row for row in rows}
    for each in (target, source):
        if each.uuid not in found:
            raise NotFound("execution", each)
        other = found[each.uuid].flow_id
        if other is not None and other != flow_id:
            raise ExecutionAlreadyInFlow(each, other)
    return found[source.uuid], found[target.uuid]
