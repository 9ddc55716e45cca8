"""One tag of a flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.flows.flow_tags import check_flow_tag_key
from flowfabric.ids import uuid_partition

GET_FLOW_TAG: Final[LiteralString] = """
-- flows.get_flow_tag
SELECT tags ->> %(key)s::text AS value FROM ff.flow_core
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
   AND (%(namespaces)s::text[] IS NULL OR namespace = ANY (%(namespaces)s::text[]))
"""


class _Tag(msgspec.Struct, frozen=True):
    value: str | None


async def get_flow_tag(
    conn: Connection,
    flow_id: UUID,
    key: str,
    *,
    namespaces: Sequence[str] | None = None,
    partitions: int = 256,
) -> str | None:
    """The tag's value; None if there is no such tag or no such flow."""
    row = await fetch_maybe(
        conn,
        GET_FLOW_TAG,
        _Tag,
        partition_key=uuid_partition(flow_id, partitions),
        flow_id=flow_id,
        key=check_flow_tag_key(key),
        namespaces=namespaces,
    )
    return None if row is None else row.value
