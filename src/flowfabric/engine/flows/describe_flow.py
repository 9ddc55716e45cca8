"""One flow in full: its state, the counts of its members and their joins."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all, fetch_maybe
from flowfabric.ids import ExecutionId, GroupId, uuid_partition
from flowfabric.instants import instant
from flowfabric.joins import JoinPolicy, stored_policy
from flowfabric.states import CancellationPolicy, DerivedFlowState, FlowState, GroupState, WaitsAs
from flowfabric.tags import read_tags

DESCRIBE_FLOW: Final[LiteralString] = """
-- flows.describe_flow
SELECT f.flow_kind, f.namespace, f.public_flow_state, f.graph_revision, f.node_count, f.edge_count,
       f.created_at_ms, f.last_mutation_at_ms, f.terminal_at_ms, f.cancel_reason,
       f.cancellation_policy, f.tags, c.derived_state, c.total, c.completed, c.failed,
       c.cancelled_members, c.expired, c.skipped, c.active, c.suspended, c.waiting, c.delayed,
       c.rate_limited, c.waiting_children,
       CASE WHEN c.derived_state IN ('completed', 'failed', 'cancelled') THEN c.derived_state
            ELSE ff.flow_outcome(f.partition_key, f.flow_id,
                                 f.public_flow_state = 'cancelled') END AS outcome
  FROM ff.flow_core f
 CROSS JOIN LATERAL ff.flow_status(f.partition_key, f.flow_id,
                                     f.public_flow_state = 'cancelled') AS c
 WHERE (f.partition_key, f.flow_id) = (%(partition_key)s, %(flow_id)s)
   AND (%(namespaces)s::text[] IS NULL OR f.namespace = ANY (%(namespaces)s::text[]))
"""

GROUPS: Final[LiteralString] = """
-- flows.describe_flow: the joins of its members
SELECT g.group_id, g.waiter_eid, g.waits_as, g.policy_kind, g.k, g.on_satisfied, g.success_count,
       g.fail_count, g.skip_count, g.running_count, g.group_state
  FROM ff.exec_core m CROSS JOIN LATERAL (  -- each by its key, also before statistics know them
        SELECT g.* FROM ff.edge_group g
         WHERE (g.partition_key, g.waiter_eid) = (m.partition_key, m.execution_id) OFFSET 0) AS g
 WHERE m.partition_key = %(partition_key)s AND m.flow_id = %(flow_id)s
 ORDER BY g.waiter_eid, g.group_id
"""


class EdgeGroupSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One join of a member, and how many of its upstreams have ended.

    `waits_as` says what the member waits for: its upstreams in the flow, or children of its own.
    """

    group_id: GroupId
    downstream_execution_id: ExecutionId
    waits_as: WaitsAs
    policy: JoinPolicy
    total_deps: int
    satisfied_count: int
    failed_count: int
    skipped_count: int
    running_count: int
    group_state: GroupState


class MemberCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many members of a flow are in each public state."""

    total: int
    completed: int
    failed: int
    cancelled: int
    expired: int
    skipped: int
    active: int
    suspended: int
    waiting: int
    delayed: int
    rate_limited: int
    waiting_children: int


class FlowSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One flow as it was read."""

    flow_id: UUID
    flow_kind: str
    namespace: str
    public_flow_state: FlowState
    derived_state: DerivedFlowState
    outcome: DerivedFlowState | None
    """How the flow ends: known once nothing that is needed is left to run, also while members run
    whose outcomes nothing needs any more."""
    graph_revision: int
    node_count: int
    edge_count: int
    created_at: datetime
    last_mutation_at: datetime
    cancelled_at: datetime | None
    cancel_reason: str | None
    cancellation_policy: CancellationPolicy | None
    tags: dict[str, str]
    members: MemberCounts
    edge_groups: list[EdgeGroupSnapshot]


class _Flow(msgspec.Struct, frozen=True):
    flow_kind: str
    namespace: str
    public_flow_state: str
    graph_revision: int
    node_count: int
    edge_count: int
    created_at_ms: int
    last_mutation_at_ms: int
    terminal_at_ms: int | None
    cancel_reason: str | None
    cancellation_policy: str | None
    tags: str
    derived_state: str
    total: int
    completed: int
    failed: int
    cancelled_members: int
    expired: int
    skipped: int
    active: int
    suspended: int
    waiting: int
    delayed: int
    rate_limited: int
    waiting_children: int
    outcome: str | None


class _Group(msgspec.Struct, frozen=True):
    group_id: UUID
    waiter_eid: UUID
    waits_as: str
    policy_kind: str
    k: int | None
    on_satisfied: str | None
    success_count: int
    fail_count: int
    skip_count: int
    running_count: int
    group_state: str


async def describe_flow(
    conn: Connection,
    flow_id: UUID,
    *,
    namespaces: Sequence[str] | None = None,
    partitions: int = 256,
) -> FlowSnapshot | None:
    """The flow with its joins, or None; the transaction must read one snapshot.

    None also for a flow that is in none of the namespaces, if these are given.
    """
    home = uuid_partition(flow_id, partitions)
    flow = await fetch_maybe(
        conn, DESCRIBE_FLOW, _Flow, partition_key=home, flow_id=flow_id, namespaces=namespaces
    )
    if flow is None:
        return None
    groups = await fetch_all(conn, GROUPS, _Group, partition_key=home, flow_id=flow_id)
    tags = read_tags(flow.tags)
    return FlowSnapshot(
        flow_id=flow_id,
        flow_kind=flow.flow_kind,
        namespace=flow.namespace,
        public_flow_state=FlowState(flow.public_flow_state),
        derived_state=DerivedFlowState(flow.derived_state),
        outcome=None if flow.outcome is None else DerivedFlowState(flow.outcome),
        graph_revision=flow.graph_revision,
        node_count=flow.node_count,
        edge_count=flow.edge_count,
        created_at=instant(flow.created_at_ms),
        last_mutation_at=instant(flow.last_mutation_at_ms),
        cancelled_at=instant(flow.terminal_at_ms),
        cancel_reason=flow.cancel_reason,
        cancellation_policy=(
            None
            if flow.cancellation_policy is None
            else CancellationPolicy(flow.cancellation_policy)
        ),
        tags=dict(sorted(tags.items())),
        members=MemberCounts(
            total=flow.total,
            completed=flow.completed,
            failed=flow.failed,
            cancelled=flow.cancelled_members,
            expired=flow.expired,
            skipped=flow.skipped,
            active=flow.active,
            suspended=flow.suspended,
            waiting=flow.waiting,
            delayed=flow.delayed,
            rate_limited=flow.rate_limited,
            waiting_children=flow.waiting_children,
        ),
        edge_groups=[_snapshot(home, group) for group in groups],
    )


# A flow may have thousands of joins: calling an enum takes ten times as long as a dictionary.
_WAITS_AS: Final = {each.value: each for each in WaitsAs}
_STATES: Final = {each.value: each for each in GroupState}


def _snapshot(home: int, group: _Group) -> EdgeGroupSnapshot:
    counts = (group.success_count, group.fail_count, group.skip_count, group.running_count)
    return EdgeGroupSnapshot(
        group_id=GroupId(home, group.group_id),
        downstream_execution_id=ExecutionId(home, group.waiter_eid),
        waits_as=_WAITS_AS[group.waits_as],
        policy=stored_policy(group.policy_kind, group.k, group.on_satisfied),
        total_deps=sum(counts),
        satisfied_count=group.success_count,
        failed_count=group.fail_count,
        skipped_count=group.skip_count,
        running_count=group.running_count,
        group_state=_STATES[group.group_state],
    )
