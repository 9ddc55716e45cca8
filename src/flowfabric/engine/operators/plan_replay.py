"""Which members a replay of a flow runs again, which it makes wait again, and which stay."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all, fetch_maybe
from flowfabric.engine.joins.member_joins import RunsAgain, can_run_again, member_joins
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId
from flowfabric.states import FlowState, GroupState, PublicState, SiblingCancelReason

FLOW: Final[LiteralString] = """
-- operators.plan_replay: the flow
SELECT public_flow_state FROM ff.flow_core
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
"""

# A member that ended without success is needed unless every way from it leads to a join that was
# satisfied without it, or to a parent that completed. A parent that has not ended decides about its
# children itself.
NEEDED: Final[LiteralString] = """
-- operators.plan_replay: the members that keep the flow from being completed
WITH RECURSIVE unsuccessful AS MATERIALIZED (
    SELECT partition_key, execution_id, route_id, public_state, failure_reason,
           cancellation_reason, replay_count
      FROM ff.exec_core
     WHERE partition_key = %(partition_key)s AND flow_id = %(flow_id)s
       AND lifecycle_phase = 'terminal' AND terminal_outcome <> 'success'
), way AS MATERIALIZED (  -- to the joins that wait for them
    SELECT e.upstream_eid, g.waiter_eid, g.waits_as, g.group_state, w.lifecycle_phase
      FROM unsuccessful u
      JOIN ff.edge e
        ON (e.partition_key, e.upstream_eid) = (u.partition_key, u.execution_id)
       AND e.edge_state = 'applied'
      JOIN ff.edge_group g ON (g.partition_key, g.group_id) = (e.partition_key, e.group_id)
      JOIN ff.exec_core w ON (w.partition_key, w.execution_id) = (g.partition_key, g.waiter_eid)
), needed AS (
    (SELECT u.execution_id FROM unsuccessful u
      WHERE NOT EXISTS (SELECT FROM way WHERE way.upstream_eid = u.execution_id)
      UNION
     SELECT way.upstream_eid FROM way
      WHERE way.waits_as = 'member' AND way.group_state <> 'satisfied'
        AND way.lifecycle_phase <> 'terminal')
     UNION
    SELECT way.upstream_eid
      FROM needed JOIN way ON way.waiter_eid = needed.execution_id
     WHERE way.group_state <> 'satisfied'
)
SELECT u.partition_key, u.execution_id, b.member_name, r.execution_kind, u.public_state,
       coalesce(u.failure_reason, u.cancellation_reason) AS reason, u.cancellation_reason,
       u.replay_count, ff.replay_cap(b.policy) AS max_replay_count,
       (SELECT way.waiter_eid FROM way
         WHERE way.upstream_eid = u.execution_id AND way.waits_as = 'children'
         LIMIT 1) AS parent_eid
  FROM needed
  JOIN unsuccessful u USING (execution_id)
  JOIN ff.route r USING (route_id)
  JOIN ff.exec_body b USING (partition_key, execution_id)
 ORDER BY u.execution_id
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


class _Needed(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    member_name: str | None
    execution_kind: str
    public_state: str
    reason: str | None
    cancellation_reason: str | None
    replay_count: int
    max_replay_count: int
    parent_eid: UUID | None

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


async def plan_replay(conn: Connection, partition_key: int, flow_id: UUID) -> ReplayPlan:
    """The plan for the flow as this transaction sees it; raises `NotFound(flow)`."""
    where = {"partition_key": partition_key, "flow_id": flow_id}
    flow = await fetch_maybe(conn, FLOW, _Flow, **where)
    if flow is None:
        raise NotFound("flow", flow_id)
    rows = {row.id: row for row in await fetch_all(conn, NEEDED, _Needed, **where)}
    able = _with_parents(rows, [each for each, row in rows.items() if _may_run(row)])
    again = can_run_again(able, await member_joins(conn, able))
    chosen = {*_with_parents(rows, [each.execution_id for each in again])}
    return ReplayPlan(
        is_cancelled=flow.public_flow_state == FlowState.CANCELLED,
        members={each: row.member(row.reason) for each, row in rows.items()},
        again=[each for each in again if each.execution_id in chosen],
        stay=[row.member(_why(row)) for each, row in rows.items() if each not in chosen],
    )


def waits_for_upstreams(each: RunsAgain) -> bool:
    """Does the member wait, after a join that was not decided at once?"""
    return each.waits and each.decision is GroupState.PENDING


def _may_run(row: _Needed) -> bool:
    """Children that ended with their parent are started by the parent, when it runs again."""
    ended_with_parent = row.cancellation_reason == SiblingCancelReason.PARENT_ENDED
    return row.replay_count < row.max_replay_count and not ended_with_parent


def _with_parents(
    rows: dict[ExecutionId, _Needed], able: Sequence[ExecutionId]
) -> list[ExecutionId]:
    """Those whose parents run again too, or that have none."""
    while True:
        parents: Collection[UUID | None] = {None, *(each.uuid for each in able)}
        kept = [each for each in able if rows[each].parent_eid in parents]
        if len(kept) == len(able):
            return kept
        able = kept


def _why(row: _Needed) -> str:
    if row.cancellation_reason == SiblingCancelReason.PARENT_ENDED:
        return "its parent starts it again"
    if row.replay_count >= row.max_replay_count:
        return f"replayed {row.replay_count} times already, as often as its policy allows"
    return "what it needs does not run again"
