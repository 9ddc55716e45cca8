"""The states of many flows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import uuid_partition
from flowfabric.states import DerivedFlowState

READ_FLOW_STATES: Final[LiteralString] = """
-- flows.read_flow_states
SELECT f.flow_id, c.derived_state
  FROM unnest(%(partition_key)s::smallint[], %(flow_id)s::uuid[])
       AS asked (partition_key, flow_id)
  JOIN ff.flow_core f USING (partition_key, flow_id)
 CROSS JOIN LATERAL ff.flow_status(f.partition_key, f.flow_id,
                                     f.public_flow_state = 'cancelled') AS c
"""


class _Row(msgspec.Struct, frozen=True):
    flow_id: UUID
    derived_state: str


async def read_flow_states(
    conn: Connection, flow_ids: Sequence[UUID], *, partitions: int = 256
) -> dict[UUID, DerivedFlowState]:
    """The states of those of the flows that exist, computed from their members."""
    rows = await fetch_all(
        conn,
        READ_FLOW_STATES,
        _Row,
        partition_key=[uuid_partition(each, partitions) for each in flow_ids],
        flow_id=list(flow_ids),
    )
    return {row.flow_id: DerivedFlowState(row.derived_state) for row in rows}
