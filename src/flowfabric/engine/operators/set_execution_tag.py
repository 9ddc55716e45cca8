"""One tag of an execution gets a value; the execution does not move."""

from __future__ import annotations

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.tag import tag
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId, check_tag_key, check_tag_value
from flowfabric.tags import too_many_tags


async def set_execution_tag(
    conn: Connection, execution_id: ExecutionId, key: str, value: str
) -> None:
    """The tag has this value, whatever it had; later events carry it.

    Raises `NotFound`, and `ValidationError(invalid_input)`, also for a tag beyond the limits of
    `flowfabric.tags`.
    """
    tagged = await tag(
        conn, [execution_id], key=check_tag_key(key), value=check_tag_value(value, key=key)
    )
    if not tagged:
        raise NotFound("execution", execution_id)
    if not all(tagged.values()):
        raise too_many_tags(key)
