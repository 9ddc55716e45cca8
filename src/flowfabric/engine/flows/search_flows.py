"""Flows by status, kind, tag and age, the newest first, with the counts of their members."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.flows.describe_flow import MemberCounts
from flowfabric.engine.flows.list_flows import FlowStatus, before_cursor, flow_status
from flowfabric.ids import check_tag_key
from flowfabric.instants import epoch_ms, instant
from flowfabric.pages import page_size

# The state is computed as in list_flows. The time at which a settled flow ended is read from its
# members if they are few, else from its summary, which is written soon after.
_FOUND: Final[LiteralString] = """
SELECT f.flow_id, f.flow_kind, f.namespace, f.created_at_ms, f.node_count, d.derived_state,
       CASE WHEN d.derived_state IN ('completed', 'failed', 'cancelled') THEN
           CASE WHEN f.node_count <= 200 THEN
               (SELECT max(e.terminal_at_ms) FROM ff.exec_core e
                 WHERE e.partition_key = f.partition_key AND e.flow_id = f.flow_id)
           ELSE s.last_summary_update_at_ms END END AS ended_at_ms,
       s.total_members, s.members_completed, s.members_failed, s.members_cancelled,
       s.members_expired, s.members_skipped, s.members_active, s.members_suspended,
       s.members_waiting, s.members_delayed, s.members_rate_limited, s.members_waiting_children
  FROM ff.flow_core f LEFT JOIN ff.flow_summary s USING (partition_key, flow_id)
 CROSS JOIN LATERAL (
       SELECT CASE WHEN f.public_flow_state = 'cancelled' THEN 'cancelled'
                   WHEN s.public_flow_state IN ('completed', 'failed') THEN s.public_flow_state
                   WHEN EXISTS (SELECT FROM ff.exec_core e
                                 WHERE e.partition_key = f.partition_key AND e.flow_id = f.flow_id
                                   AND e.lifecycle_phase <> 'terminal' OFFSET 0) THEN 'open'
                   ELSE (SELECT derived_state
                           FROM ff.flow_status(f.partition_key, f.flow_id, false)) END
                AS derived_state) AS d
 WHERE (f.created_at_ms, f.flow_id) < (%(before_ms)s::bigint, %(before_flow)s::uuid)
   AND f.created_at_ms >= %(since_ms)s::bigint
   AND (%(flow_kind)s::text IS NULL OR f.flow_kind = %(flow_kind)s)
   AND (%(tag_key)s::text IS NULL OR f.tags ->> %(tag_key)s = %(tag_value)s)
   AND (%(statuses)s::text[] IS NULL
        OR CASE WHEN d.derived_state IN ('completed', 'failed', 'cancelled') THEN d.derived_state
                ELSE 'active' END = ANY (%(statuses)s))"""

_NEWEST_FIRST: Final[LiteralString] = """
 ORDER BY f.created_at_ms DESC, f.flow_id DESC LIMIT %(limit)s
"""

# One statement for each index.
SEARCH_FLOWS: Final[LiteralString] = "\n-- flows.search_flows" + _FOUND + _NEWEST_FIRST

SEARCH_OF_NAMESPACE: Final[LiteralString] = (
    "\n-- flows.search_flows: of one namespace"
    + _FOUND
    + """
   AND f.namespace = %(namespace)s"""
    + _NEWEST_FIRST
)


class FoundFlow(msgspec.Struct, frozen=True, kw_only=True):
    """One flow that was found."""

    flow_id: UUID
    flow_kind: str
    namespace: str
    created_at: datetime
    ended_at: datetime | None
    node_count: int
    status: FlowStatus
    members: MemberCounts | None
    """The counts of its members as of its last summary; None before the first."""


class FoundFlows(msgspec.Struct, frozen=True, kw_only=True):
    """Some flows, and the cursor for the next page if there is one."""

    flows: list[FoundFlow]
    next_cursor: str | None


class _Flow(msgspec.Struct, frozen=True):
    flow_id: UUID
    flow_kind: str
    namespace: str
    created_at_ms: int
    node_count: int
    derived_state: str
    ended_at_ms: int | None
    total_members: int | None
    members_completed: int
    members_failed: int
    members_cancelled: int
    members_expired: int
    members_skipped: int
    members_active: int
    members_suspended: int
    members_waiting: int
    members_delayed: int
    members_rate_limited: int
    members_waiting_children: int


async def search_flows(
    conn: Connection,
    *,
    namespace: str | None = None,
    statuses: Collection[FlowStatus | str] = (),
    flow_kind: str | None = None,
    tag: tuple[str, str] | None = None,
    since: datetime | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> FoundFlows:
    """At most `limit` flows that match, the newest first, from `cursor` on.

    Raises `ValidationError(invalid_input)` for a cursor that no page has, and for a tag key that
    no flow can have.
    """
    size = page_size(limit)
    if size == 0:
        return FoundFlows(flows=[], next_cursor=None)
    before_ms, before_flow = before_cursor(cursor)
    filters = {
        "before_ms": before_ms,
        "before_flow": before_flow,
        "since_ms": 0 if since is None else epoch_ms(since),
        "flow_kind": flow_kind,
        "tag_key": None if tag is None else check_tag_key(tag[0]),
        "tag_value": None if tag is None else tag[1],
        "statuses": [FlowStatus(each).value for each in statuses] or None,
        "limit": size + 1,
    }
    if namespace is None:
        rows = await fetch_all(conn, SEARCH_FLOWS, _Flow, **filters)
    else:
        rows = await fetch_all(conn, SEARCH_OF_NAMESPACE, _Flow, namespace=namespace, **filters)
    last = rows[size - 1] if len(rows) > size else None
    return FoundFlows(
        flows=[_found(row) for row in rows[:size]],
        next_cursor=None if last is None else f"{last.created_at_ms}/{last.flow_id}",
    )


def _found(row: _Flow) -> FoundFlow:
    return FoundFlow(
        flow_id=row.flow_id,
        flow_kind=row.flow_kind,
        namespace=row.namespace,
        created_at=instant(row.created_at_ms),
        ended_at=instant(row.ended_at_ms),
        node_count=row.node_count,
        status=flow_status(row.derived_state),
        members=None
        if row.total_members is None
        else MemberCounts(
            total=row.total_members,
            completed=row.members_completed,
            failed=row.members_failed,
            cancelled=row.members_cancelled,
            expired=row.members_expired,
            skipped=row.members_skipped,
            active=row.members_active,
            suspended=row.members_suspended,
            waiting=row.members_waiting,
            delayed=row.members_delayed,
            rate_limited=row.members_rate_limited,
            waiting_children=row.members_waiting_children,
        ),
    )
