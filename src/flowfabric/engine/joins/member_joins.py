"""What the joins of members would decide if some of their upstreams ran again; nothing changes."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from typing import Any, Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId, member_group_id
from flowfabric.states import GroupState

# By the upstreams as they are now, not by the completions that were dispatched.
MEMBER_JOINS: Final[LiteralString] = """
-- joins.member_joins
SELECT g.partition_key, g.waiter_eid, g.group_state, g.policy_kind, g.k, g.expected_n,
       upstreams.edges, upstreams.succeeded, upstreams.running, upstreams.unsuccessful
  FROM unnest(%(partition_key)s::smallint[], %(group_id)s::uuid[])
       AS named (partition_key, group_id)
  JOIN ff.edge_group g USING (partition_key, group_id)
 CROSS JOIN LATERAL (  -- driven by the joins, whatever statistics say
       SELECT count(*)::integer AS edges,
              (count(*) FILTER (WHERE e.resolution = 'satisfied'
                                   OR u.terminal_outcome = 'success'))::integer AS succeeded,
              (count(*) FILTER (WHERE e.resolution <> 'satisfied'
                                  AND u.lifecycle_phase <> 'terminal'))::integer AS running,
              coalesce(array_agg(u.execution_id) FILTER (
                           WHERE e.resolution <> 'satisfied'
                             AND u.terminal_outcome NOT IN ('none', 'success')),
                       '{}') AS unsuccessful
         FROM (SELECT * FROM ff.edge e
                WHERE (e.partition_key, e.group_id) = (g.partition_key, g.group_id)
                  AND e.edge_state = 'applied' OFFSET 0) AS e
         LEFT JOIN ff.exec_core u
           ON (u.partition_key, u.execution_id) = (e.partition_key, e.upstream_eid)) AS upstreams
 WHERE upstreams.edges > 0
"""


class MemberJoin(msgspec.Struct, frozen=True):
    """The join of one member, with its upstreams as they are now."""

    partition_key: int
    waiter_eid: UUID
    group_state: str
    policy_kind: str
    k: int | None
    expected_n: int | None
    edges: int
    succeeded: int
    running: int
    unsuccessful: list[UUID]
    """The upstreams that have ended without success."""

    @property
    def waiter(self) -> ExecutionId:
        return ExecutionId(self.partition_key, self.waiter_eid)

    def decision(self, running_again: int) -> GroupState:
        """As `ff.group_decision` decides once so many unsuccessful upstreams run again."""
        running = self.running + running_again
        failed = self.edges - self.succeeded - running
        required = {"all_of": self.edges, "any_of": 1}.get(self.policy_kind, self.k or 0)
        if self.expected_n is not None and self.edges < self.expected_n:
            return GroupState.PENDING
        if self.succeeded >= required:
            return GroupState.SATISFIED
        if failed > self.edges - required and (self.edges >= required or running == 0):
            return GroupState.IMPOSSIBLE
        return GroupState.PENDING


def group_columns(members: Sequence[ExecutionId]) -> dict[str, list[Any]]:
    """The ids of the joins of these members, as parameters of a statement."""
    groups = [member_group_id(each) for each in members]
    return {
        "partition_key": [group.partition_key for group in groups],
        "group_id": [group.uuid for group in groups],
    }


async def member_joins(
    conn: Connection, members: Sequence[ExecutionId]
) -> dict[ExecutionId, MemberJoin]:
    """The joins of those members that have upstreams."""
    rows = await fetch_all(conn, MEMBER_JOINS, MemberJoin, **group_columns(members))
    return {row.waiter: row for row in rows}


class RunsAgain(msgspec.Struct, frozen=True):
    """A member that can run again, and what it waits for first."""

    execution_id: ExecutionId
    waits: bool
    """Is its join evaluated again?"""
    decision: GroupState = GroupState.SATISFIED
    """What its join decides at once; pending: the member waits for upstreams."""
    edges: int = 0
    """How many edges its join has."""


def can_run_again(
    members: Sequence[ExecutionId],
    joins: dict[ExecutionId, MemberJoin],
    running: Collection[ExecutionId] = (),
) -> list[RunsAgain]:
    """Those of the members that can run again, if all of these and those in `running` do.

    A member whose join can then not be satisfied is left out. An upstream comes before a member
    that cannot run without it.
    """
    found: dict[ExecutionId, RunsAgain] = {}
    waiting_for = defaultdict[UUID, list[MemberJoin]](list)
    running_again = dict.fromkeys(members, 0)
    for each in members:
        for upstream in joins[each].unsuccessful if each in joins else ():
            waiting_for[upstream].append(joins[each])
    queue = deque((*running, *members))
    started = set(running)
    while queue:
        each = queue.popleft()
        if each not in started:
            if each in found:
                continue
            may = _runs_again(each, joins.get(each), running_again[each])
            if may is None:
                continue
            found[each] = may
        for join in waiting_for.pop(each.uuid, ()):
            running_again[join.waiter] += 1
            if join.waiter not in found:
                queue.append(join.waiter)
    # An upstream that was found after its waiter counts for the decision of the waiter too.
    return [
        msgspec.structs.replace(each, decision=joins[each.execution_id].decision(again))
        if each.waits and (again := running_again[each.execution_id])
        else each
        for each in found.values()
    ]


def _runs_again(member: ExecutionId, join: MemberJoin | None, again: int) -> RunsAgain | None:
    if join is None or join.group_state == GroupState.SATISFIED:
        return RunsAgain(execution_id=member, waits=False)
    decision = join.decision(again)
    if decision is GroupState.IMPOSSIBLE:
        return None
    return RunsAgain(execution_id=member, waits=True, decision=decision, edges=join.edges)
