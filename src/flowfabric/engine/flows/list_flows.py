"""The flows of one partition, or of all, page by page; and the members of one flow."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, PartitionKey, uuid_partition
from flowfabric.instants import instant
from flowfabric.states import DerivedFlowState, PublicState

MAX_PAGE: Final = 1000

# A flow that its summary calls settled is believed; any other is looked at.
LIST_FLOWS: Final[LiteralString] = """
-- flows.list_flows
SELECT f.partition_key, f.flow_id, f.flow_kind, f.namespace, f.created_at_ms, f.node_count,
       CASE WHEN f.public_flow_state = 'cancelled' THEN 'cancelled'
            WHEN s.public_flow_state IN ('completed', 'failed') THEN s.public_flow_state
            ELSE (SELECT derived_state FROM ff.flow_standing(f.partition_key, f.flow_id, false)) END
           AS derived_state
  FROM ff.flow_core f LEFT JOIN ff.flow_summary s USING (partition_key, flow_id)
 WHERE (f.partition_key, f.flow_id) > (%(after_partition)s::smallint, %(after_flow)s::uuid)
   AND (%(partition_key)s::smallint IS NULL OR f.partition_key = %(partition_key)s)
   AND (%(namespace)s::text IS NULL OR f.namespace = %(namespace)s)
 ORDER BY f.partition_key, f.flow_id LIMIT %(limit)s
"""

LIST_FLOW_MEMBERS: Final[LiteralString] = """
-- flows.list_flow_members
SELECT e.partition_key, e.execution_id, e.public_state, r.execution_kind, r.lane_id, b.member_name,
       e.total_attempt_count, coalesce(e.failure_reason, e.cancellation_reason) AS reason
  FROM ff.exec_core e
  JOIN ff.route r USING (route_id)
  JOIN ff.exec_body b USING (partition_key, execution_id)
 WHERE e.partition_key = %(partition_key)s AND e.flow_id = %(flow_id)s
   AND e.execution_id > %(after)s::uuid
 ORDER BY e.execution_id LIMIT %(limit)s
"""

_FIRST: Final = UUID(int=0)


class FlowStatus(StrEnum):
    """A flow in a word."""

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


class FlowPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some flows, and the cursor for the next page if there is one."""

    flows: list[FlowSummary]
    next_cursor: UUID | None


class FlowMember(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a flow."""

    execution_id: ExecutionId
    name: str | None
    execution_kind: str
    lane_id: str
    public_state: PublicState
    total_attempt_count: int
    reason: str | None


class MemberPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some members, and the cursor for the next page if there is one."""

    members: list[FlowMember]
    next_cursor: ExecutionId | None


class _Flow(msgspec.Struct, frozen=True):
    partition_key: int
    flow_id: UUID
    flow_kind: str
    namespace: str
    created_at_ms: int
    node_count: int
    derived_state: str


class _Member(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    public_state: str
    execution_kind: str
    lane_id: str
    member_name: str | None
    total_attempt_count: int
    reason: str | None


async def list_flows(
    conn: Connection,
    partition: PartitionKey | None = None,
    *,
    cursor: UUID | None = None,
    limit: int = 100,
    namespace: str | None = None,
    partitions: int = 256,
) -> FlowPage:
    """At most `limit` flows after `cursor`: of one partition, or of all in turn."""
    if partition is not None and partition.family != "fp":
        raise invalid_input("partition_key", str(partition), "holds no flows")
    size = _size(limit)
    if size == 0:
        return FlowPage(flows=[], next_cursor=None)
    after = (-1, _FIRST) if cursor is None else (uuid_partition(cursor, partitions), cursor)
    rows = await fetch_all(
        conn,
        LIST_FLOWS,
        _Flow,
        after_partition=after[0],
        after_flow=after[1],
        partition_key=None if partition is None else partition.index,
        namespace=namespace,
        limit=size + 1,
    )
    flows = [
        FlowSummary(
            flow_id=row.flow_id,
            flow_kind=row.flow_kind,
            namespace=row.namespace,
            created_at=instant(row.created_at_ms),
            node_count=row.node_count,
            status=_status(row.derived_state),
        )
        for row in rows[:size]
    ]
    return FlowPage(flows=flows, next_cursor=flows[-1].flow_id if len(rows) > size else None)


async def list_flow_members(
    conn: Connection,
    flow_id: UUID,
    *,
    cursor: ExecutionId | None = None,
    limit: int = 1000,
    partitions: int = 256,
) -> MemberPage:
    """At most `limit` members after `cursor`, by id; empty where there is no such flow."""
    size = _size(limit)
    if size == 0:
        return MemberPage(members=[], next_cursor=None)
    rows = await fetch_all(
        conn,
        LIST_FLOW_MEMBERS,
        _Member,
        partition_key=uuid_partition(flow_id, partitions),
        flow_id=flow_id,
        after=_FIRST if cursor is None else cursor.uuid,
        limit=size + 1,
    )
    members = [
        FlowMember(
            execution_id=ExecutionId(row.partition_key, row.execution_id),
            name=row.member_name,
            execution_kind=row.execution_kind,
            lane_id=row.lane_id,
            public_state=PublicState(row.public_state),
            total_attempt_count=row.total_attempt_count,
            reason=row.reason,
        )
        for row in rows[:size]
    ]
    more = len(rows) > size
    return MemberPage(members=members, next_cursor=members[-1].execution_id if more else None)


def _size(limit: int) -> int:
    if limit < 0:
        raise invalid_input("limit", limit, "must not be negative")
    return min(limit, MAX_PAGE)


def _status(derived: str) -> FlowStatus:
    return FlowStatus(derived) if DerivedFlowState(derived).is_settled else FlowStatus.ACTIVE
