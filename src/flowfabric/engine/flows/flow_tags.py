"""Tags of a flow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, Moved, fetch_maybe, fetch_one
from flowfabric.errors import NotFound, ValidationError
from flowfabric.ids import check_tag_key, check_tag_value, uuid_partition

SET_FLOW_TAG: Final[LiteralString] = """
-- flows.set_flow_tag
WITH tagged AS (
    UPDATE ff.flow_core SET tags = tags || jsonb_build_object(%(key)s::text, %(value)s::text)
     WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s) RETURNING 1
)
SELECT count(*) AS moved FROM tagged
"""

GET_FLOW_TAG: Final[LiteralString] = """
-- flows.get_flow_tag
SELECT tags ->> %(key)s::text AS value FROM ff.flow_core
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
"""


class _Tag(msgspec.Struct, frozen=True):
    value: str | None


def check_flow_tags(tags: Mapping[str, str]) -> None:
    """Raises `ValidationError`: `invalid_tag_key` for a key, `invalid_input` for a value."""
    for key, value in tags.items():
        _check_key(key)
        check_tag_value(value, key=key)


def _check_key(key: str) -> str:
    try:
        return check_tag_key(key)
    except ValidationError as error:
        raise ValidationError("invalid_tag_key", error.detail) from None


async def set_flow_tag(
    conn: Connection, flow_id: UUID, key: str, value: str, *, partitions: int = 256
) -> None:
    """The tag has this value, whatever it had; the graph's revision stays.

    Raises `NotFound`, and `ValidationError` (`invalid_tag_key`, `invalid_input`).
    """
    tagged = await fetch_one(
        conn,
        SET_FLOW_TAG,
        Moved,
        partition_key=uuid_partition(flow_id, partitions),
        flow_id=flow_id,
        key=_check_key(key),
        value=check_tag_value(value, key=key),
    )
    if not tagged.moved:
        raise NotFound("flow", flow_id)


async def get_flow_tag(
    conn: Connection, flow_id: UUID, key: str, *, partitions: int = 256
) -> str | None:
    """The tag's value; None where there is no such tag or no such flow."""
    row = await fetch_maybe(
        conn,
        GET_FLOW_TAG,
        _Tag,
        partition_key=uuid_partition(flow_id, partitions),
        flow_id=flow_id,
        key=_check_key(key),
    )
    return None if row is None else row.value
