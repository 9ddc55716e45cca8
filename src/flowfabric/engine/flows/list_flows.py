"""The flows of one partition, or of all, page by page, the newest first."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.flows.describe_flow import MemberCounts
from flowfabric.errors import invalid_input
from flowfabric.ids import PartitionKey, storable_text
from flowfabric.instants import check_instant, epoch_ms, instant
from flowfabric.pages import instant_cursor, newest_before, page_size
from flowfabric.states import DerivedFlowState
from flowfabric.tags import read_tags

# The summary of a settled flow is final. Any other is active while a member has not ended, however
# many there are; otherwise its state is computed from its members. `OFFSET 0` keeps the
# planner from hashing the members of all flows.
_PAGE: Final[LiteralString] = """
SELECT f.flow_id, f.flow_kind, f.namespace, f.created_at_ms, f.node_count, now.derived_state,
       f.tags, s.last_summary_update_at_ms AS counted_at_ms, s.total_members AS total,
       s.members_completed AS completed, s.members_failed AS failed,
       s.members_cancelled AS cancelled, s.members_expired AS expired,
       s.members_skipped AS skipped, s.members_active AS active,
       s.members_suspended AS suspended, s.members_waiting AS waiting,
       s.members_delayed AS delayed, s.members_rate_limited AS rate_limited,
       s.members_waiting_children AS waiting_children
  FROM ff.flow_core f LEFT JOIN ff.flow_summary s USING (partition_key, flow_id)
 CROSS JOIN LATERAL (
        SELECT CASE
            WHEN f.public_flow_state = 'cancelled' THEN 'cancelled'
            WHEN s.public_flow_state IN ('completed', 'failed') THEN s.public_flow_state
            WHEN EXISTS (SELECT FROM ff.exec_core e
                          WHERE e.partition_key = f.partition_key AND e.flow_id = f.flow_id
                            AND e.lifecycle_phase <> 'terminal' OFFSET 0) THEN 'open'
            ELSE (SELECT derived_state FROM ff.flow_status(f.partition_key, f.flow_id, false)) END
                AS derived_state
        OFFSET 0) AS now
 WHERE (f.created_at_ms, f.flow_id) < (%(before_ms)s::bigint, %(before_flow)s::uuid)
   AND f.created_at_ms >= %(since_ms)s::bigint
   AND (%(flow_kind)s::text IS NULL OR f.flow_kind = %(flow_kind)s)
   AND (%(tags)s::text IS NULL OR f.tags @> %(tags)s::text::jsonb)
   AND (%(derived_states)s::text[] IS NULL OR now.derived_state = ANY (%(derived_states)s))"""

_NEWEST_FIRST: Final[LiteralString] = """
 ORDER BY f.created_at_ms DESC, f.flow_id DESC LIMIT %(limit)s
"""

# One statement for each index.
LIST_FLOWS: Final[LiteralString] = "\n-- flows.list_flows" + _PAGE + _NEWEST_FIRST

LIST_OF_NAMESPACE: Final[LiteralString] = (
    "\n-- flows.list_flows: of one namespace"
    + _PAGE
    + """
   AND f.namespace = %(namespace)s"""
    + _NEWEST_FIRST
)

LIST_OF_PARTITION: Final[LiteralString] = (
    "\n-- flows.list_flows: of one partition"
    + _PAGE
    + """
   AND f.partition_key = %(partition_key)s
   AND (%(namespace)s::text IS NULL OR f.namespace = %(namespace)s)"""
    + _NEWEST_FIRST
)


class FlowStatus(StrEnum):
    """The state of a flow in a list."""

    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class FlowSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One flow of a list."""

    flow_id: UUID
    flow_kind: str
    namespace: str
    created_at: datetime
    node_count: int
    status: FlowStatus
    tags: dict[str, str]
    counts: MemberCounts | None
    """The members by state, as of `counted_at`; None until they have been counted."""
    counted_at: datetime | None


class FlowPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some flows, and the cursor for the next page if there is one."""

    flows: list[FlowSummary]
    next_cursor: str | None


class _Flow(msgspec.Struct, frozen=True):
    flow_id: UUID
    flow_kind: str
    namespace: str
    created_at_ms: int
    node_count: int
    derived_state: str
    tags: str
    counted_at_ms: int | None
    total: int | None
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


async def list_flows(
    conn: Connection,
    partition: PartitionKey | None = None,
    *,
    cursor: str | None = None,
    limit: int = 100,
    namespace: str | None = None,
    statuses: Collection[FlowStatus] = (),
    flow_kind: str | None = None,
    tag: tuple[str, str] | None = None,
    created_since: datetime | None = None,
) -> FlowPage:
    """At most `limit` flows, the newest first, from `cursor` on: of one partition, or of all.

    Of those that have one of `statuses`, the kind, the tag, and are not older; each is compared if
    it is given. Raises `ValidationError(invalid_input)` for a cursor that no page has, or a text
    that cannot be stored.
    """
    if partition is not None and partition.family != "fp":
        raise invalid_input("partition_key", str(partition), "holds no flows")
    size = page_size(limit)
    if size == 0:
        return FlowPage(flows=[], next_cursor=None)
    before_ms, before_flow = newest_before(cursor, page_of="flows")
    if flow_kind is not None:
        storable_text(flow_kind, field="flow_kind")
    if tag is not None:
        storable_text("".join(tag), field="tag")
    page: dict[str, object] = {
        "before_ms": before_ms,
        "before_flow": before_flow,
        "limit": size + 1,
        "since_ms": 0
        if created_since is None
        else epoch_ms(check_instant(created_since, field="created_since")),
        "flow_kind": flow_kind,
        "tags": None if tag is None else msgspec.json.encode({tag[0]: tag[1]}).decode(),
        "derived_states": [
            state.value for state in DerivedFlowState if flow_status(state.value) in statuses
        ]
        or None,
    }
    if partition is not None:
        where = {"partition_key": partition.index, "namespace": namespace}
        rows = await fetch_all(conn, LIST_OF_PARTITION, _Flow, **where, **page)
    elif namespace is not None:
        rows = await fetch_all(conn, LIST_OF_NAMESPACE, _Flow, namespace=namespace, **page)
    else:
        rows = await fetch_all(conn, LIST_FLOWS, _Flow, **page)
    flows = [
        FlowSummary(
            flow_id=row.flow_id,
            flow_kind=row.flow_kind,
            namespace=row.namespace,
            created_at=instant(row.created_at_ms),
            node_count=row.node_count,
            status=flow_status(row.derived_state),
            tags=read_tags(row.tags),
            counts=_counts(row),
            counted_at=instant(row.counted_at_ms),
        )
        for row in rows[:size]
    ]
    return FlowPage(flows=flows, next_cursor=flow_cursor(flows[-1]) if len(rows) > size else None)


def flow_cursor(flow: FlowSummary) -> str:
    """The cursor of the page that begins after this flow."""
    return instant_cursor(epoch_ms(flow.created_at), flow.flow_id)


def _counts(row: _Flow) -> MemberCounts | None:
    if row.total is None:
        return None
    fields = {name: getattr(row, name) for name in MemberCounts.__struct_fields__}
    return MemberCounts(**fields)


def flow_status(derived: str) -> FlowStatus:
    """The state in a list, of the state that is computed from the members."""
    return FlowStatus(derived) if DerivedFlowState(derived).is_settled else FlowStatus.ACTIVE
