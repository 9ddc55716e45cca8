"""The flows of one partition, or of all, page by page."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.errors import invalid_input
from flowfabric.ids import PartitionKey, uuid_partition
from flowfabric.instants import instant
from flowfabric.pages import FIRST_ID, page_size
from flowfabric.states import DerivedFlowState

# The summary of a settled flow is final; the state of any other is computed from its members.
LIST_FLOWS: Final[LiteralString] = """
-- flows.list_flows
SELECT f.partition_key, f.flow_id, f.flow_kind, f.namespace, f.created_at_ms, f.node_count,
       CASE WHEN f.public_flow_state = 'cancelled' THEN 'cancelled'
            WHEN s.public_flow_state IN ('completed', 'failed') THEN s.public_flow_state
            ELSE (SELECT derived_state FROM ff.flow_status(f.partition_key, f.flow_id, false)) END
           AS derived_state
  FROM ff.flow_core f LEFT JOIN ff.flow_summary s USING (partition_key, flow_id)
 WHERE (f.partition_key, f.flow_id) > (%(after_partition)s::smallint, %(after_flow)s::uuid)
   AND (%(partition_key)s::smallint IS NULL OR f.partition_key = %(partition_key)s)
   AND (%(namespace)s::text IS NULL OR f.namespace = %(namespace)s)
 ORDER BY f.partition_key, f.flow_id LIMIT %(limit)s
"""


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


class FlowPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some flows, and the cursor for the next page if there is one."""

    flows: list[FlowSummary]
    next_cursor: UUID | None


class _Flow(msgspec.Struct, frozen=True):
    partition_key: int
    flow_id: UUID
    flow_kind: str
    namespace: str
    created_at_ms: int
    node_count: int
    derived_state: str


async def list_flows(
    conn: Connection,
    partition: PartitionKey | None = None,
    *,
    cursor: UUID | None = None,
    limit: int = 100,
    namespace: str | None = None,
    partitions: int = 256,
) -> FlowPage:
    """At most `limit` flows after `cursor`, by partition and id: of one partition, or of all."""
    if partition is not None and partition.family != "fp":
        raise invalid_input("partition_key", str(partition), "holds no flows")
    size = page_size(limit)
    if size == 0:
        return FlowPage(flows=[], next_cursor=None)
    after = (-1, FIRST_ID) if cursor is None else (uuid_partition(cursor, partitions), cursor)
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


def _status(derived: str) -> FlowStatus:
    return FlowStatus(derived) if DerivedFlowState(derived).is_settled else FlowStatus.ACTIVE
