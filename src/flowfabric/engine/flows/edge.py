"""An edge as it is read."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import EdgeResolution, EdgeState, TerminalOutcome

EDGE_COLUMNS: Final[LiteralString] = """
SELECT partition_key, flow_id, edge_id, upstream_eid, downstream_eid, dependency_kind,
       data_passing_ref, edge_state, created_at_ms, created_by, resolution, resolved_outcome
  FROM ff.edge
"""

EXISTING_EDGE: Final[LiteralString] = (
    "\n-- flows.existing_edge"
    + EDGE_COLUMNS
    + """ WHERE partition_key = %(partition_key)s
   AND ((flow_id, edge_id) = (%(flow_id)s, %(edge_id)s)
        OR (upstream_eid, downstream_eid) = (%(upstream)s, %(downstream)s))
 LIMIT 1
"""
)

SATISFACTION: Final = "all_required"


class EdgeSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One edge as it stood at the moment of reading."""

    edge_id: UUID
    flow_id: UUID
    upstream: ExecutionId
    downstream: ExecutionId
    dependency_kind: str
    satisfaction_condition: str
    data_passing_ref: str | None
    edge_state: EdgeState
    created_at: datetime
    created_by: str
    resolution: EdgeResolution
    resolved_outcome: TerminalOutcome | None


class EdgeRow(msgspec.Struct, frozen=True):
    partition_key: int
    flow_id: UUID
    edge_id: UUID
    upstream_eid: UUID
    downstream_eid: UUID
    dependency_kind: str
    data_passing_ref: str | None
    edge_state: str
    created_at_ms: int
    created_by: str
    resolution: str
    resolved_outcome: str | None


async def existing_edge(
    conn: Connection, flow_id: UUID, edge_id: UUID, upstream: ExecutionId, downstream: ExecutionId
) -> EdgeSnapshot | None:
    """An edge of that id, or between those two, if there is one."""
    row = await fetch_maybe(
        conn,
        EXISTING_EDGE,
        EdgeRow,
        partition_key=upstream.partition_key,
        flow_id=flow_id,
        edge_id=edge_id,
        upstream=upstream.uuid,
        downstream=downstream.uuid,
    )
    return None if row is None else edge_snapshot(row)


def edge_snapshot(row: EdgeRow) -> EdgeSnapshot:
    return EdgeSnapshot(
        edge_id=row.edge_id,
        flow_id=row.flow_id,
        upstream=ExecutionId(row.partition_key, row.upstream_eid),
        downstream=ExecutionId(row.partition_key, row.downstream_eid),
        dependency_kind=row.dependency_kind,
        satisfaction_condition=SATISFACTION,
        data_passing_ref=row.data_passing_ref or None,
        edge_state=EdgeState(row.edge_state),
        created_at=instant(row.created_at_ms),
        created_by=row.created_by,
        resolution=EdgeResolution(row.resolution),
        resolved_outcome=(
            None if row.resolved_outcome is None else TerminalOutcome(row.resolved_outcome)
        ),
    )
