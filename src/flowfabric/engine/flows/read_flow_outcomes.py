"""The outcomes of many flows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import uuid_partition
from flowfabric.states import DerivedFlowState

READ_FLOW_OUTCOMES: Final[LiteralString] = """
-- flows.read_flow_outcomes
SELECT f.flow_id, ff.flow_outcome(f.partition_key, f.flow_id,
                                  f.public_flow_state = 'cancelled') AS outcome
  FROM unnest(%(partition_key)s::smallint[], %(flow_id)s::uuid[])
       AS asked (partition_key, flow_id)
  JOIN ff.flow_core f USING (partition_key, flow_id)
 WHERE %(namespaces)s::text[] IS NULL OR f.namespace = ANY (%(namespaces)s::text[])
"""


class _Row(msgspec.Struct, frozen=True):
    flow_id: UUID
    outcome: str | None


async def read_flow_outcomes(
    conn: Connection,
    flow_ids: Sequence[UUID],
    *,
    partitions: int = 256,
    namespaces: Sequence[str] | None = None,
) -> dict[UUID, DerivedFlowState | None]:
    """How those of the flows end that exist; None while something that is needed is left to run.

    A flow that is in none of the namespaces, if these are given, counts as one that does not exist.
    """
    rows = await fetch_all(
        conn,
        READ_FLOW_OUTCOMES,
        _Row,
        partition_key=[uuid_partition(each, partitions) for each in flow_ids],
        flow_id=list(flow_ids),
        namespaces=namespaces,
    )
    return {
        row.flow_id: None if row.outcome is None else DerivedFlowState(row.outcome) for row in rows
    }
