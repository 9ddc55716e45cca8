"""Flows are locked: none is cancelled and no graph changes until the transaction ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.states import FlowState

# Shared: those who move members of a flow do not wait for one another.
LOCK_FLOWS: Final[LiteralString] = """
-- flows.lock_flows
SELECT f.partition_key, f.flow_id, f.public_flow_state
  FROM ff.flow_core f
  JOIN unnest(%(partition_key)s::smallint[], %(flow_id)s::uuid[])
       AS named (partition_key, flow_id) USING (partition_key, flow_id)
 ORDER BY f.partition_key, f.flow_id FOR SHARE OF f
"""


class _Flow(msgspec.Struct, frozen=True):
    partition_key: int
    flow_id: UUID
    public_flow_state: str


async def lock_flows(
    conn: Connection, flows: Sequence[tuple[int, UUID]]
) -> dict[tuple[int, UUID], FlowState]:
    """The flows, each given by its partition and its id, are locked; the state of each."""
    rows = await fetch_all(
        conn,
        LOCK_FLOWS,
        _Flow,
        partition_key=[partition_key for partition_key, _ in flows],
        flow_id=[flow_id for _, flow_id in flows],
    )
    return {(row.partition_key, row.flow_id): FlowState(row.public_flow_state) for row in rows}
