"""The namespace of a flow; it never changes."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.ids import NUM_FLOW_PARTITIONS, uuid_partition

GET_FLOW_NAMESPACE: Final[LiteralString] = """
-- flows.get_flow_namespace
SELECT namespace FROM ff.flow_core
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
"""


class _Row(msgspec.Struct, frozen=True):
    namespace: str


async def get_flow_namespace(
    conn: Connection, flow_id: UUID, *, partitions: int = NUM_FLOW_PARTITIONS
) -> str | None:
    """The namespace that the flow was created in; None if it does not exist."""
    partition_key = uuid_partition(flow_id, partitions)
    row = await fetch_maybe(
        conn, GET_FLOW_NAMESPACE, _Row, partition_key=partition_key, flow_id=flow_id
    )
    return None if row is None else row.namespace
