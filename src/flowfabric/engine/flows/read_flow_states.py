"""The state of every member of one flow, in one row: what a picture of the flow needs to stay."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.ids import NUM_FLOW_PARTITIONS, uuid_partition
from flowfabric.states import PublicState

READ_FLOW_STATES: Final[LiteralString] = """
-- flows.read_flow_states
SELECT f.graph_revision,
       ARRAY(SELECT e.public_state FROM ff.execution e
              WHERE e.partition_key = f.partition_key AND e.flow_id = f.flow_id
              ORDER BY e.execution_id) AS states
  FROM ff.flow_core f
 WHERE (f.partition_key, f.flow_id) = (%(partition_key)s, %(flow_id)s)
"""


class FlowStates(msgspec.Struct, frozen=True, kw_only=True):
    """The states of the members by their ids, in the order of `list_flow_members`."""

    graph_revision: int
    states: list[PublicState]


class _Row(msgspec.Struct, frozen=True):
    graph_revision: int
    states: list[str]


async def read_flow_states(
    conn: Connection, flow_id: UUID, *, partitions: int = NUM_FLOW_PARTITIONS
) -> FlowStates | None:
    """The states of all members, and the revision of the graph; None if there is no such flow.

    While the revision stays, the members stay, so that each keeps its place.
    """
    row = await fetch_maybe(
        conn,
        READ_FLOW_STATES,
        _Row,
        partition_key=uuid_partition(flow_id, partitions),
        flow_id=flow_id,
    )
    if row is None:
        return None
    return FlowStates(
        graph_revision=row.graph_revision, states=[_STATES[each] for each in row.states]
    )


_STATES: Final = {state.value: state for state in PublicState}
