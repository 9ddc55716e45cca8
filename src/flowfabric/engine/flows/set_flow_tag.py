"""One tag of a flow gets a value."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.flows.flow_tags import check_flow_tag_key
from flowfabric.errors import NotFound
from flowfabric.ids import check_tag_value, uuid_partition

SET_FLOW_TAG: Final[LiteralString] = """
-- flows.set_flow_tag
WITH tagged AS (
    UPDATE ff.flow_core SET tags = tags || jsonb_build_object(%(key)s::text, %(value)s::text)
     WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s) RETURNING 1
)
SELECT count(*) AS moved FROM tagged
"""


async def set_flow_tag(
    conn: Connection, flow_id: UUID, key: str, value: str, *, partitions: int = 256
) -> None:
    """The tag has this value, whatever it had before; the graph revision stays.

    Raises `NotFound`, and `ValidationError` (`invalid_tag_key`, `invalid_input`).
    """
    tagged = await fetch_one(
        conn,
        SET_FLOW_TAG,
        Moved,
        partition_key=uuid_partition(flow_id, partitions),
        flow_id=flow_id,
        key=check_flow_tag_key(key),
        value=check_tag_value(value, key=key),
    )
    if not tagged.moved:
        raise NotFound("flow", flow_id)
