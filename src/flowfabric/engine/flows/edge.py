"""An edge of a flow: how it is read, and whether one exists."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.ids import ExecutionId, GroupId, member_group_id
from flowfabric.instants import instant
from flowfabric.states import EdgeResolution, EdgeState, TerminalOutcome, WaitsAs

_COLUMNS: Final[LiteralString] = """
SELECT e.partition_key, e.flow_id, e.edge_id, e.upstream_eid, e.group_id, g.waiter_eid,
       g.waits_as, e.dependency_kind, e.data_passing_ref, e.edge_state, e.created_at_ms,
       e.created_by, e.resolution, e.resolved_outcome
"""

EDGE_COLUMNS: Final[LiteralString] = (
    _COLUMNS
    + """  FROM ff.edge e JOIN ff.edge_group g USING (partition_key, group_id)
"""
)

# For many edges: each looks its join up by its key, also while there are no statistics yet, when
# the planner would compare every edge with every join of the partition.
MANY_EDGES: Final[LiteralString] = (
    _COLUMNS
    + """  FROM ff.edge e
 CROSS JOIN LATERAL (
       SELECT g.waiter_eid, g.waits_as FROM ff.edge_group g
        WHERE (g.partition_key, g.group_id) = (e.partition_key, e.group_id) OFFSET 0) AS g
"""
)

EXISTING_EDGE: Final[LiteralString] = (
    "\n-- flows.existing_edge"
    + EDGE_COLUMNS
    + """ WHERE e.partition_key = %(partition_key)s
   AND ((e.flow_id, e.edge_id) = (%(flow_id)s, %(edge_id)s)
        OR (e.upstream_eid, e.group_id) = (%(upstream)s, %(group_id)s))
 LIMIT 1
"""
)

SATISFACTION: Final = "all_required"


class EdgeSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One edge as it was read: `downstream` waits for `upstream`."""

    edge_id: UUID
    flow_id: UUID
    upstream: ExecutionId
    downstream: ExecutionId
    group_id: GroupId
    """The join that the edge belongs to."""
    waits_as: WaitsAs
    """What the downstream waits for: an upstream in the flow, or a child of its own."""
    dependency_kind: str
    satisfaction_condition: str
    data_passing_ref: str | None
    edge_state: EdgeState
    created_at: datetime
    created_by: str
    resolution: EdgeResolution
    resolved_outcome: TerminalOutcome | None


class EdgeRow(msgspec.Struct, frozen=True):
    """The columns of `EDGE_COLUMNS`."""

    partition_key: int
    flow_id: UUID
    edge_id: UUID
    upstream_eid: UUID
    group_id: UUID
    waiter_eid: UUID
    waits_as: str
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
    """An edge of that id, or between these two executions; None if there is none."""
    row = await fetch_maybe(
        conn,
        EXISTING_EDGE,
        EdgeRow,
        partition_key=upstream.partition_key,
        flow_id=flow_id,
        edge_id=edge_id,
        upstream=upstream.uuid,
        group_id=member_group_id(downstream).uuid,
    )
    return None if row is None else edge_snapshot(row)


# Thousands of edges are read at once: calling an enum takes ten times as long as a dictionary.
_WAITS_AS: Final = {each.value: each for each in WaitsAs}
_STATES: Final = {each.value: each for each in EdgeState}
_RESOLUTIONS: Final = {each.value: each for each in EdgeResolution}
_OUTCOMES: Final = {each.value: each for each in TerminalOutcome}


def edge_snapshot(row: EdgeRow) -> EdgeSnapshot:
    """The row with the types that callers see."""
    return EdgeSnapshot(
        edge_id=row.edge_id,
        flow_id=row.flow_id,
        upstream=ExecutionId(row.partition_key, row.upstream_eid),
        downstream=ExecutionId(row.partition_key, row.waiter_eid),
        group_id=GroupId(row.partition_key, row.group_id),
        waits_as=_WAITS_AS[row.waits_as],
        dependency_kind=row.dependency_kind,
        satisfaction_condition=SATISFACTION,
        data_passing_ref=row.data_passing_ref or None,
        edge_state=_STATES[row.edge_state],
        created_at=instant(row.created_at_ms),
        created_by=row.created_by,
        resolution=_RESOLUTIONS[row.resolution],
        resolved_outcome=(
            None if row.resolved_outcome is None else _OUTCOMES[row.resolved_outcome]
        ),
    )
