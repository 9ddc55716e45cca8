"""One tag of an execution gets a value; the execution does not move."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId, check_tag_key, check_tag_value

SET_EXECUTION_TAG: Final[LiteralString] = """
-- lifecycle.set_execution_tag
WITH tagged AS (
    UPDATE ff.exec_core
       SET tags = tags || jsonb_build_object(%(key)s::text, %(value)s::text),
           last_mutation_at_ms = ff.now_ms()
     WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
 RETURNING partition_key, execution_id, created_at_ms
), listed AS (        -- for the search by tag
    INSERT INTO ff.exec_tag (partition_key, execution_id, tag_key, tag_value, created_at_ms)
    SELECT partition_key, execution_id, %(key)s, %(value)s, created_at_ms FROM tagged
        ON CONFLICT (partition_key, execution_id, tag_key) DO UPDATE
       SET tag_value = EXCLUDED.tag_value
)
SELECT EXISTS (SELECT FROM tagged) AS found
"""


class _Found(msgspec.Struct, frozen=True):
    found: bool


async def set_execution_tag(
    conn: Connection, execution_id: ExecutionId, key: str, value: str
) -> None:
    """The tag has this value, whatever it had; later events carry it. Raises `NotFound`."""
    answer = await fetch_one(
        conn,
        SET_EXECUTION_TAG,
        _Found,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        key=check_tag_key(key),
        value=check_tag_value(value, key=key),
    )
    if not answer.found:
        raise NotFound("execution", execution_id)
