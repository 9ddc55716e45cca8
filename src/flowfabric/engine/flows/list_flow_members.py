"""The members of one flow, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId, uuid_partition
from flowfabric.instants import instant
from flowfabric.pages import FIRST_ID, page_size
from flowfabric.states import BlockingReason, PublicState

# Each member looks up what belongs to it by key. Without `OFFSET 0` and while there are no
# statistics yet, the planner would compare every member with every body of the partition.
LIST_FLOW_MEMBERS: Final[LiteralString] = """
-- flows.list_flow_members
SELECT e.partition_key, e.execution_id, e.public_state, r.execution_kind, r.lane_id, b.member_name,
       e.total_attempt_count, coalesce(e.failure_reason, e.cancellation_reason) AS reason,
       EXISTS (SELECT FROM (  -- driven by the member, however few joins wait for children
                      SELECT edge.partition_key, edge.group_id FROM ff.edge edge
                       WHERE (edge.partition_key, edge.upstream_eid)
                           = (e.partition_key, e.execution_id) OFFSET 0) AS edge
                 JOIN ff.edge_group g USING (partition_key, group_id)
                WHERE g.waits_as = 'children') AS is_child,
       e.created_at_ms, e.started_at_ms, e.terminal_at_ms, e.progress_pct, e.blocking_reason
  FROM (SELECT * FROM ff.execution
         WHERE partition_key = %(partition_key)s AND flow_id = %(flow_id)s
           AND execution_id > %(after)s::uuid
           AND (%(namespaces)s::text[] IS NULL
                OR EXISTS (SELECT FROM ff.flow_core f
                            WHERE (f.partition_key, f.flow_id) = (%(partition_key)s, %(flow_id)s)
                              AND f.namespace = ANY (%(namespaces)s::text[])))
         ORDER BY execution_id LIMIT %(limit)s) AS e
 CROSS JOIN LATERAL (SELECT r.execution_kind, r.lane_id FROM ff.route r
                      WHERE r.route_id = e.route_id OFFSET 0) AS r
 CROSS JOIN LATERAL (
       SELECT b.member_name FROM ff.exec_body b
        WHERE (b.partition_key, b.execution_id) = (e.partition_key, e.execution_id) OFFSET 0) AS b
 ORDER BY e.execution_id
"""


class FlowMember(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a flow."""

    execution_id: ExecutionId
    name: str | None
    execution_kind: str
    lane_id: str
    public_state: PublicState
    total_attempt_count: int
    reason: str | None
    is_child: bool = False
    """Did the handler of another member start it?"""
    created_at: datetime | None = None
    started_at: datetime | None = None
    terminal_at: datetime | None = None
    progress_pct: int | None = None
    """How far its handler says that it is, in percent."""
    blocking_reason: BlockingReason | None = None


class MemberPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some members, and the cursor for the next page if there is one."""

    members: list[FlowMember]
    next_cursor: ExecutionId | None


_STATES: Final = {each.value: each for each in PublicState}
_REASONS: Final = {each.value: each for each in BlockingReason if each is not BlockingReason.NONE}
"""Of thousands of members: calling an enum takes ten times as long as a dictionary."""


class _Member(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    public_state: str
    execution_kind: str
    lane_id: str
    member_name: str | None
    total_attempt_count: int
    reason: str | None
    is_child: bool
    created_at_ms: int
    started_at_ms: int | None
    terminal_at_ms: int | None
    progress_pct: int | None
    blocking_reason: str


async def list_flow_members(
    conn: Connection,
    flow_id: UUID,
    *,
    cursor: ExecutionId | None = None,
    limit: int = 1000,
    namespaces: Sequence[str] | None = None,
    partitions: int = 256,
) -> MemberPage:
    """At most `limit` members after `cursor`, by id; empty if there is no such flow."""
    size = page_size(limit)
    if size == 0:
        return MemberPage(members=[], next_cursor=None)
    rows = await fetch_all(
        conn,
        LIST_FLOW_MEMBERS,
        _Member,
        partition_key=uuid_partition(flow_id, partitions),
        flow_id=flow_id,
        after=FIRST_ID if cursor is None else cursor.uuid,
        limit=size + 1,
        namespaces=namespaces,
    )
    members = [
        FlowMember(
            execution_id=ExecutionId(row.partition_key, row.execution_id),
            name=row.member_name,
            execution_kind=row.execution_kind,
            lane_id=row.lane_id,
            public_state=_STATES[row.public_state],
            total_attempt_count=row.total_attempt_count,
            reason=row.reason,
            is_child=row.is_child,
            created_at=instant(row.created_at_ms),
            started_at=instant(row.started_at_ms),
            terminal_at=instant(row.terminal_at_ms),
            progress_pct=row.progress_pct,
            blocking_reason=_REASONS.get(row.blocking_reason),
        )
        for row in rows[:size]
    ]
    more = len(rows) > size
    return MemberPage(members=members, next_cursor=members[-1].execution_id if more else None)
