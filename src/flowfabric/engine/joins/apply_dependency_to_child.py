"""A staged edge begins to gate its downstream."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all, fetch_maybe, fetch_one
from flowfabric.engine.joins.apply_decisions import apply_decisions
from flowfabric.engine.joins.evaluate_join import evaluate_join
from flowfabric.engine.joins.resolve_edges import MemberCompletion, resolve_edges
from flowfabric.engine.lifecycle.hold_dependents import hold_dependents
from flowfabric.errors import ExecutionAlreadyInFlow, FlowAlreadyTerminal, NotFound, ValidationError
from flowfabric.ids import ExecutionId, uuid_partition
from flowfabric.states import EdgeState, FlowState, GroupState, LifecyclePhase

# The flow first, then the group, then the edge: the order in which everybody locks.
LOCK_FLOW: Final[LiteralString] = """
-- joins.apply_dependency_to_child: the flow
SELECT f.public_flow_state
  FROM ff.flow_core f WHERE (f.partition_key, f.flow_id) = (%(partition_key)s, %(flow_id)s)
   FOR SHARE
"""

ENDPOINTS: Final[LiteralString] = """
-- joins.apply_dependency_to_child: the edge as it was staged
SELECT upstream_eid, downstream_eid FROM ff.edge
 WHERE (partition_key, flow_id, edge_id) = (%(partition_key)s, %(flow_id)s, %(edge_id)s)
"""

LOCK_GROUP: Final[LiteralString] = """
-- joins.apply_dependency_to_child: the group, made if it is the first edge
INSERT INTO ff.edge_group AS g (partition_key, flow_id, downstream_eid)
VALUES (%(partition_key)s, %(flow_id)s, %(downstream)s)
    ON CONFLICT (partition_key, downstream_eid) DO UPDATE SET flow_id = g.flow_id
RETURNING g.policy_kind, g.group_state, g.expected_n
"""

LOCK_EDGE: Final[LiteralString] = """
-- joins.apply_dependency_to_child: the edge
SELECT edge_state FROM ff.edge
 WHERE (partition_key, flow_id, edge_id) = (%(partition_key)s, %(flow_id)s, %(edge_id)s)
   FOR NO KEY UPDATE
"""

LOCK_BOTH: Final[LiteralString] = """
-- joins.apply_dependency_to_child: both ends
SELECT e.execution_id, e.flow_id, e.lifecycle_phase, e.terminal_outcome
  FROM ff.exec_core e
 WHERE e.partition_key = %(partition_key)s AND e.execution_id = ANY (%(execution_id)s::uuid[])
 ORDER BY e.execution_id FOR NO KEY UPDATE OF e
"""

# A statement of its own: the end may have come while the one before waited for its lock.
LAST_END: Final[LiteralString] = """
-- joins.apply_dependency_to_child: the event of the upstream's end
SELECT coalesce(max(event_id), 1) AS event_id FROM ff.completion_event
 WHERE execution_id = %(execution_id)s AND partition_key = %(partition_key)s
"""

APPLY: Final[LiteralString] = """
-- joins.apply_dependency_to_child
WITH applied AS (
    UPDATE ff.edge SET edge_state = 'applied', applied_at_ms = ff.now_ms()
     WHERE (partition_key, flow_id, edge_id) = (%(partition_key)s, %(flow_id)s, %(edge_id)s)
), counted AS (       -- a satisfied all-of that has not begun waits again
    UPDATE ff.edge_group
       SET running_count = running_count + 1,
           group_state = CASE WHEN %(reopens)s THEN 'pending' ELSE group_state END,
           fired_at_ms = CASE WHEN %(reopens)s THEN NULL ELSE fired_at_ms END
     WHERE (partition_key, downstream_eid) = (%(partition_key)s, %(downstream)s)
 RETURNING running_count
)
SELECT running_count AS unsatisfied_count FROM counted
"""

UNRESOLVED: Final[LiteralString] = """
-- joins.apply_dependency_to_child: what is still open
SELECT running_count AS unsatisfied_count FROM ff.edge_group
 WHERE (partition_key, downstream_eid) = (%(partition_key)s, %(downstream)s)
"""


class EdgeApplied(msgspec.Struct, frozen=True, kw_only=True):
    """The edge gates; so many edges of the group are unresolved."""

    edge_id: UUID
    unsatisfied_count: int


class EdgeAlreadyApplied(msgspec.Struct, frozen=True, kw_only=True):
    """The edge gated before; nothing changed."""

    edge_id: UUID


class _Endpoints(msgspec.Struct, frozen=True):
    upstream_eid: UUID
    downstream_eid: UUID


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


class _Newest(msgspec.Struct, frozen=True):
    event_id: int


class _Open(msgspec.Struct, frozen=True):
    unsatisfied_count: int


async def apply_dependency_to_child(
    conn: Connection,
    flow_id: UUID,
    edge_id: UUID,
    *,
    upstream: ExecutionId | None = None,
    downstream: ExecutionId | None = None,
    partitions: int = 256,
) -> EdgeApplied | EdgeAlreadyApplied:
    """The downstream waits for the upstream; needs a transaction.

    An upstream that has ended resolves the edge at once. A downstream that runs or is suspended is
    not held up; the edge only counts. Raises `NotFound` (edge, execution), `FlowAlreadyTerminal`,
    `ExecutionAlreadyInFlow`, and `ValidationError(invalid_dependency)` for endpoints that are not
    the edge's and for a downstream that has ended.
    """
    home = uuid_partition(flow_id, partitions)
    edge = {"partition_key": home, "flow_id": flow_id, "edge_id": edge_id}
    ends = await fetch_maybe(conn, ENDPOINTS, _Endpoints, **edge)
    if ends is None:
        raise NotFound("edge", edge_id)
    source, target = ExecutionId(home, ends.upstream_eid), ExecutionId(home, ends.downstream_eid)
    if upstream not in (None, source) or downstream not in (None, target):
        raise ValidationError("invalid_dependency", f"edge {edge_id} leads {source} → {target}")
    flow = await fetch_one(conn, LOCK_FLOW, _Flow, partition_key=home, flow_id=flow_id)
    of_group = {"partition_key": home, "downstream": target.uuid}
    group = await fetch_one(conn, LOCK_GROUP, _Group, flow_id=flow_id, **of_group)
    if (await fetch_one(conn, LOCK_EDGE, _Edge, **edge)).edge_state == EdgeState.APPLIED:
        return EdgeAlreadyApplied(edge_id=edge_id)
    if flow.public_flow_state != FlowState.OPEN:
        raise FlowAlreadyTerminal(flow_id)
    above, below = await _members(conn, flow_id, source, target)
    if below.lifecycle_phase == LifecyclePhase.TERMINAL:
        raise ValidationError("invalid_dependency", f"downstream_terminal: {target} has ended")
    waits = below.lifecycle_phase == LifecyclePhase.RUNNABLE
    reopens = waits and group.policy_kind == "all_of" and group.group_state == GroupState.SATISFIED
    await fetch_one(conn, APPLY, _Open, reopens=reopens, **(edge | of_group))
    if waits and (reopens or group.group_state == GroupState.PENDING):
        await hold_dependents(conn, [target])
    if above.lifecycle_phase == LifecyclePhase.TERMINAL:
        end = await fetch_one(conn, LAST_END, _Newest, partition_key=home, execution_id=source.uuid)
        told = MemberCompletion(end.event_id, home, above.execution_id, above.terminal_outcome)
        # Where edges are counted on, the last one decides and the earliest success is passed on.
        decides = group.expected_n is None
        await apply_decisions(
            conn, await resolve_edges(conn, [told], only_edge=edge_id, decides=decides)
        )
    await apply_decisions(conn, await evaluate_join(conn, target))
    left = await fetch_one(conn, UNRESOLVED, _Open, **of_group)
    return EdgeApplied(edge_id=edge_id, unsatisfied_count=left.unsatisfied_count)


async def _members(
    conn: Connection, flow_id: UUID, source: ExecutionId, target: ExecutionId
) -> tuple[_Member, _Member]:
    rows = await fetch_all(
        conn,
        LOCK_BOTH,
        _Member,
        partition_key=source.partition_key,
        execution_id=[source.uuid, target.uuid],
    )
    found = {row.execution_id: row for row in rows}
    for each in (target, source):
        if each.uuid not in found:
            raise NotFound("execution", each)
        other = found[each.uuid].flow_id
        if other is not None and other != flow_id:
            raise ExecutionAlreadyInFlow(each, other)
    return found[source.uuid], found[target.uuid]
