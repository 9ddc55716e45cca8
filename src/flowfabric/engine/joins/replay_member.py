"""A member of a flow runs again; one that was skipped first waits for what it depends on."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, Moved, fetch_maybe, fetch_one
from flowfabric.engine.flows.unsettle_summary import unsettle_summary
from flowfabric.engine.joins.apply_decisions import apply_decisions
from flowfabric.engine.joins.evaluate_join import evaluate_join
from flowfabric.engine.lifecycle.operator_event import SOMEBODY
from flowfabric.engine.lifecycle.pass_results import pass_results
from flowfabric.engine.lifecycle.replay_execution import Replayed, replay_execution
from flowfabric.errors import FlowAlreadyTerminal, NotFound
from flowfabric.ids import ExecutionId, member_group_id
from flowfabric.states import FlowState, GroupState, PublicState, TerminalOutcome

MEMBERSHIP: Final[LiteralString] = """
-- joins.replay_member: whose member it is
SELECT flow_id, terminal_outcome FROM ff.exec_core
 WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
"""

# A cancel of the flow waits until the replay is committed, and then finds the member.
LOCK_FLOW: Final[LiteralString] = """
-- joins.replay_member: its flow
SELECT public_flow_state FROM ff.flow_core
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s) FOR SHARE
"""

# Group, then edges, then executions by id: the order in which everybody locks.
LOCK: Final[LiteralString] = """
-- joins.replay_member: its group and its edges
WITH grouped AS (
    SELECT FROM ff.edge_group
     WHERE (partition_key, group_id) = (%(partition_key)s, %(group_id)s) FOR UPDATE
), edges AS (
    SELECT FROM ff.edge
     WHERE (partition_key, group_id) = (%(partition_key)s, %(group_id)s)
       AND (SELECT count(*) FROM grouped) IS NOT NULL
       FOR UPDATE
), still AS (         -- an end that comes meanwhile waits, and then finds the edges open
    SELECT FROM ff.exec_core m
     WHERE m.partition_key = %(partition_key)s
       AND m.execution_id IN (SELECT %(execution_id)s
                               UNION ALL
                              SELECT e.upstream_eid FROM ff.edge e
                               WHERE (e.partition_key, e.group_id)
                                   = (%(partition_key)s, %(group_id)s))
       AND (SELECT count(*) FROM edges) IS NOT NULL
     ORDER BY m.execution_id FOR NO KEY UPDATE OF m
)
SELECT (SELECT count(*) FROM grouped) AS moved WHERE (SELECT count(*) FROM still) IS NOT NULL
"""

# An upstream that has succeeded since is satisfied; the old end of any other is not used again.
RESET: Final[LiteralString] = """
-- joins.replay_member: what was impossible is open again
WITH upstreams AS (
    SELECT e.flow_id, e.edge_id, u.terminal_outcome = 'success' AS succeeded,
           coalesce((SELECT max(c.event_id) FROM ff.completion_event c
                      WHERE c.execution_id = u.execution_id
                        AND c.partition_key = u.partition_key), 0) AS last_event_id
      FROM ff.edge e
      JOIN ff.exec_core u ON (u.partition_key, u.execution_id) = (e.partition_key, e.upstream_eid)
     WHERE (e.partition_key, e.group_id) = (%(partition_key)s, %(group_id)s)
       AND e.resolution = 'impossible'
), reset AS (
    UPDATE ff.edge e
       SET resolution = CASE WHEN u.succeeded THEN 'satisfied' ELSE 'unresolved' END,
           resolved_outcome = CASE WHEN u.succeeded THEN 'success' END,
           resolved_at_ms = CASE WHEN u.succeeded THEN ff.now_ms() END,
           resolved_event_id = CASE WHEN u.succeeded THEN u.last_event_id END,
           min_event_id = CASE WHEN u.succeeded THEN e.min_event_id ELSE u.last_event_id END
      FROM upstreams u
     WHERE (e.partition_key, e.flow_id, e.edge_id) = (%(partition_key)s, u.flow_id, u.edge_id)
 RETURNING u.succeeded, e.upstream_eid, e.data_passing_ref, e.resolved_event_id
), recounted AS (     -- what was satisfied stays; nothing is failed or skipped any more
    UPDATE ff.edge_group g
       SET success_count = g.success_count
               + (SELECT count(*) FROM reset WHERE succeeded)::integer,
           running_count = g.running_count
               + (SELECT count(*) FROM reset WHERE NOT succeeded)::integer,
           fail_count = 0, skip_count = 0, group_state = 'pending', fired_at_ms = NULL
     WHERE (g.partition_key, g.group_id) = (%(partition_key)s, %(group_id)s)
 RETURNING g.policy_kind
)
SELECT ARRAY(SELECT upstream_eid FROM reset WHERE succeeded AND data_passing_ref <> ''
              ORDER BY resolved_event_id) AS sources
  FROM recounted WHERE policy_kind = 'all_of'
"""

STATE_AFTER: Final = {
    GroupState.SATISFIED.value: PublicState.WAITING,
    GroupState.IMPOSSIBLE.value: PublicState.SKIPPED,
}
"""Where a member stands whose only group was decided at once."""


class _Membership(msgspec.Struct, frozen=True):
    flow_id: UUID | None
    terminal_outcome: str


class _Flow(msgspec.Struct, frozen=True):
    public_flow_state: str


class _Fed(msgspec.Struct, frozen=True):
    sources: list[UUID]


async def replay_member(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    actor: str = SOMEBODY,
    reason: str | None = None,
) -> Replayed:
    """As `replay_execution`; a skipped member of a flow waits for its upstreams again.

    If those have succeeded by now it is claimable at once; if they are too few, whatever they come
    to, it is skipped again. Replays top-down: what was skipped because of it stays skipped. Raises
    also `FlowAlreadyTerminal` for a member of a cancelled flow.
    """
    one = {"partition_key": execution_id.partition_key, "execution_id": execution_id.uuid}
    membership = await fetch_maybe(conn, MEMBERSHIP, _Membership, **one)
    if membership is None:
        raise NotFound("execution", execution_id)
    if membership.flow_id is None:
        return await replay_execution(conn, execution_id, actor=actor, reason=reason)
    flow = await fetch_maybe(
        conn,
        LOCK_FLOW,
        _Flow,
        partition_key=execution_id.partition_key,
        flow_id=membership.flow_id,
    )
    if flow is not None and flow.public_flow_state == FlowState.CANCELLED:
        raise FlowAlreadyTerminal(membership.flow_id)
    skipped = membership.terminal_outcome == TerminalOutcome.SKIPPED
    join = member_group_id(execution_id)
    of_join = {"partition_key": join.partition_key, "group_id": join.uuid}
    groups = None
    if skipped:
        groups = (await fetch_one(conn, LOCK, Moved, **one, group_id=join.uuid)).moved
    replayed = await replay_execution(
        conn, execution_id, actor=actor, reason=reason, groups_reset=groups
    )
    await unsettle_summary(conn, execution_id.partition_key, membership.flow_id)
    if not skipped:
        return replayed
    fed = await fetch_maybe(conn, RESET, _Fed, **of_join)
    if fed is not None and fed.sources:
        home = execution_id.partition_key
        await pass_results(
            conn, [(ExecutionId(home, source), execution_id) for source in fed.sources]
        )
    decisions = await evaluate_join(conn, join)
    await apply_decisions(conn, decisions)
    if not decisions:
        return replayed
    came_to = STATE_AFTER[decisions[0].decision]
    return msgspec.structs.replace(replayed, public_state=came_to)
