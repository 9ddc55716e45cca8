"""Which members a replay of a flow runs again, which it makes wait again, and which stay."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all, fetch_maybe
from flowfabric.engine.joins.member_joins import RunsAgain, can_run_again, member_joins
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId
from flowfabric.states import (
    FlowState,
    GroupState,
    LaneState,
    PublicState,
    SiblingCancelReason,
    WaitsAs,
)

FLOW: Final[LiteralString] = """
-- operators.plan_replay: the flow
SELECT public_flow_state FROM ff.flow_core
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
   AND (%(namespaces)s::text[] IS NULL OR namespace = ANY (%(namespaces)s::text[]))
"""

UNSUCCESSFUL: Final[LiteralString] = """
-- operators.plan_replay: the members that ended without success
SELECT e.partition_key, e.execution_id, b.member_name, r.execution_kind, e.public_state,
       coalesce(e.failure_reason, e.cancellation_reason) AS reason, e.cancellation_reason,
       e.replay_count, ff.replay_cap(b.policy) AS max_replay_count, r.lane_id,
       coalesce((SELECT l.lane_state FROM ff.lane_registry l WHERE l.lane_id = r.lane_id),
                'active') AS lane_state
  FROM (SELECT * FROM ff.execution  -- by the flow, however few there are of each outcome
         WHERE partition_key = %(partition_key)s AND flow_id = %(flow_id)s OFFSET 0) AS e
  JOIN ff.route r USING (route_id)
  JOIN ff.exec_body b USING (partition_key, execution_id)
 WHERE e.lifecycle_phase = 'terminal' AND e.terminal_outcome <> 'success'
 ORDER BY e.execution_id
"""

WAYS: Final[LiteralString] = """
-- operators.plan_replay: the joins that wait for them
SELECT e.upstream_eid, g.waiter_eid, g.waits_as, g.group_state = 'satisfied' AS satisfied,
       w.lifecycle_phase = 'terminal' AS ended
  FROM (SELECT * FROM ff.execution
         WHERE partition_key = %(partition_key)s AND flow_id = %(flow_id)s OFFSET 0) AS u
 CROSS JOIN LATERAL (  -- driven by the members, whatever statistics say
       SELECT * FROM ff.edge e
        WHERE (e.partition_key, e.upstream_eid) = (u.partition_key, u.execution_id)
          AND e.edge_state = 'applied'
       OFFSET 0) AS e
  JOIN ff.edge_group g ON (g.partition_key, g.group_id) = (e.partition_key, e.group_id)
  JOIN ff.execution w ON (w.partition_key, w.execution_id) = (g.partition_key, g.waiter_eid)
 WHERE u.lifecycle_phase = 'terminal' AND u.terminal_outcome <> 'success'
"""


class ReplayMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member that a replay of its flow is about, as it was before."""

    execution_id: ExecutionId
    name: str | None
    execution_kind: str
    public_state: PublicState
    reason: str | None
    """Why it had ended; of a member that stays, why it stays."""


class ReplayPlan(msgspec.Struct, frozen=True):
    """What a replay would do to the members of a flow, as they are now."""

    is_cancelled: bool
    members: dict[ExecutionId, ReplayMember]
    """Those that are needed and ended without success."""
    again: list[RunsAgain]
    """Those that run again; an upstream comes before a member that cannot run without it."""
    stay: list[ReplayMember]

    @property
    def skipped(self) -> set[ExecutionId]:
        """The members that were skipped."""
        return {
            each
            for each, member in self.members.items()
            if member.public_state is PublicState.SKIPPED
        }


class _Flow(msgspec.Struct, frozen=True):
    public_flow_state: str


class _Way(msgspec.Struct, frozen=True):
    """From a member that ended without success to an execution that waits for it."""

    upstream_eid: UUID
    waiter_eid: UUID
    waits_as: str
    satisfied: bool
    ended: bool
    """Has the execution ended that waits?"""


class _Unsuccessful(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    member_name: str | None
    execution_kind: str
    public_state: str
    reason: str | None
    cancellation_reason: str | None
    replay_count: int
    max_replay_count: int
    lane_id: str
    lane_state: str

    @property
    def id(self) -> ExecutionId:
        return ExecutionId(self.partition_key, self.execution_id)

    def member(self, reason: str | None) -> ReplayMember:
        return ReplayMember(
            execution_id=self.id,
            name=self.member_name,
            execution_kind=self.execution_kind,
            public_state=PublicState(self.public_state),
            reason=reason,
        )


async def plan_replay(
    conn: Connection,
    partition_key: int,
    flow_id: UUID,
    *,
    namespaces: Sequence[str] | None = None,
) -> ReplayPlan:
    """The plan for the flow as it is now; nothing is locked.

    Raises `NotFound(flow)`, also for one in none of the namespaces.
    """
    where = {"partition_key": partition_key, "flow_id": flow_id}
    flow = await fetch_maybe(conn, FLOW, _Flow, namespaces=namespaces, **where)
    if flow is None:
        raise NotFound("flow", flow_id)
    found = await fetch_all(conn, UNSUCCESSFUL, _Unsuccessful, **where)
    ways = await fetch_all(conn, WAYS, _Way, **where)
    needed = _needed([row.execution_id for row in found], ways)
    rows = {row.id: row for row in found if row.execution_id in needed}
    parents = {way.upstream_eid: way.waiter_eid for way in ways if way.waits_as == WaitsAs.CHILDREN}
    able = _with_parents([each for each, row in rows.items() if _may_run(row)], parents)
    again = can_run_again(able, await member_joins(conn, able))
    chosen = {*_with_parents([each.execution_id for each in again], parents)}
    return ReplayPlan(
        is_cancelled=flow.public_flow_state == FlowState.CANCELLED,
        members={each: row.member(row.reason) for each, row in rows.items()},
        again=[each for each in again if each.execution_id in chosen],
        stay=[row.member(_why(row)) for each, row in rows.items() if each not in chosen],
    )


def waits_for_upstreams(each: RunsAgain) -> bool:
    """Does the member wait, after a join that was not decided at once?"""
    return each.waits and each.decision is GroupState.PENDING


def _needed(unsuccessful: Collection[UUID], ways: Sequence[_Way]) -> set[UUID]:
    """The members without which the flow is not completed.

    The flow does without a member if every way from it leads to a join that was satisfied, to a
    parent that completed, or on to members that the flow does without. A parent that has not ended
    decides about its children itself.
    """
    above = defaultdict[UUID, list[UUID]](list)
    needed = {*unsuccessful}.difference(way.upstream_eid for way in ways)
    for way in ways:
        if not way.satisfied:
            above[way.waiter_eid].append(way.upstream_eid)
            if not way.ended and way.waits_as == WaitsAs.MEMBER:
                needed.add(way.upstream_eid)
    queue = [*needed]
    while queue:
        found = [each for each in above.pop(queue.pop(), ()) if each not in needed]
        needed.update(found)
        queue += found
    return needed


def _may_run(row: _Unsuccessful) -> bool:
    """Children that ended with their parent are started by the parent, when it runs again."""
    ended_with_parent = row.cancellation_reason == SiblingCancelReason.PARENT_ENDED
    accepted = LaneState(row.lane_state).accepts
    return row.replay_count < row.max_replay_count and accepted and not ended_with_parent


def _with_parents(able: Sequence[ExecutionId], parents: Mapping[UUID, UUID]) -> list[ExecutionId]:
    """Those whose parents run again too, or that have none."""
    while True:
        among = {each.uuid for each in able}
        kept = [each for each in able if parents.get(each.uuid, each.uuid) in among]
        if len(kept) == len(able):
            return kept
        able = kept


def _why(row: _Unsuccessful) -> str:
    if row.cancellation_reason == SiblingCancelReason.PARENT_ENDED:
        return "its parent starts it again"
    if row.replay_count >= row.max_replay_count:
        return f"replayed {row.replay_count} times already, as often as its policy allows"
    if not LaneState(row.lane_state).accepts:
        return f"lane {row.lane_id!r} is {row.lane_state} and takes no new work"
    return "what it needs does not run again"
