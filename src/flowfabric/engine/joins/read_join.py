"""One join over children: its state, and the children that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId, GroupId
from flowfabric.joins import JoinPolicy, stored_policy
from flowfabric.states import EdgeResolution, GroupState

READ_JOIN: Final[LiteralString] = """
-- joins.read_join
SELECT g.group_state, g.policy_kind, g.k, g.on_satisfied, e.upstream_eid, e.resolution,
       coalesce(e.resolved_at_ms <= g.fired_at_ms, false) AS counted
  FROM ff.edge_group g JOIN ff.edge e USING (partition_key, group_id)
 WHERE (g.partition_key, g.group_id) = (%(partition_key)s, %(group_id)s)
   AND (%(namespaces)s::text[] IS NULL
        OR EXISTS (SELECT FROM ff.exec_core w JOIN ff.route r USING (route_id)
                    WHERE (w.partition_key, w.execution_id) = (g.partition_key, g.waiter_eid)
                      AND r.namespace = ANY (%(namespaces)s::text[])))
 ORDER BY e.resolved_at_ms, e.resolved_event_id
"""


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """A join over children. Once it is decided, a child that ends later does not change it."""

    group_state: GroupState
    policy: JoinPolicy
    children: frozenset[ExecutionId]
    succeeded: tuple[ExecutionId, ...] = ()
    """The children whose success counted for the decision, in the order in which they ended."""
    lost: tuple[ExecutionId, ...] = ()
    """The children that had ended otherwise by then."""


class _Row(msgspec.Struct, frozen=True):
    group_state: str
    policy_kind: str
    k: int | None
    on_satisfied: str | None
    upstream_eid: UUID
    resolution: str
    counted: bool


async def read_join(
    conn: Connection, group: GroupId, *, namespaces: Sequence[str] | None = None
) -> Join:
    """The join as it is now; raises `NotFound`, also for one in none of the namespaces."""
    home = group.partition_key
    rows = await fetch_all(
        conn,
        READ_JOIN,
        _Row,
        partition_key=home,
        group_id=group.uuid,
        namespaces=namespaces,
    )
    if not rows:
        raise NotFound("join", group)
    first = rows[0]

    def counted(resolution: EdgeResolution) -> tuple[ExecutionId, ...]:
        return tuple(
            ExecutionId(home, row.upstream_eid)
            for row in rows
            if row.counted and row.resolution == resolution
        )

    return Join(
        group_state=GroupState(first.group_state),
        policy=stored_policy(first.policy_kind, first.k, first.on_satisfied),
        children=frozenset(ExecutionId(home, row.upstream_eid) for row in rows),
        succeeded=counted(EdgeResolution.SATISFIED),
        lost=counted(EdgeResolution.IMPOSSIBLE),
    )
