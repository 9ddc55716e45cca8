"""One tag of executions gets a value; the executions do not move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lock_executions import lock_executions, lock_visible
from flowfabric.ids import ExecutionId, id_columns

TAG: Final[LiteralString] = """
-- lifecycle.tag
WITH locked AS (      -- in one order
    SELECT e.partition_key, e.execution_id, e.tags ->> %(key)s::text AS old_value
      FROM ff.exec_core e
      JOIN unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
           AS named (partition_key, execution_id) USING (partition_key, execution_id)
     ORDER BY e.partition_key, e.execution_id FOR NO KEY UPDATE OF e
), tagged AS (
    UPDATE ff.exec_core e
       SET tags = e.tags || jsonb_build_object(%(key)s::text, %(value)s::text),
           last_mutation_at_ms = ff.now_ms()
      FROM locked
     WHERE (e.partition_key, e.execution_id) = (locked.partition_key, locked.execution_id)
       AND ff.tags_fault(e.tags || jsonb_build_object(%(key)s::text, %(value)s::text)) IS NULL
 RETURNING e.partition_key, e.execution_id, e.created_at_ms
), listed AS (        -- for the search by tag
    INSERT INTO ff.exec_tag (partition_key, execution_id, tag_key, tag_value, created_at_ms)
    SELECT partition_key, execution_id, %(key)s, %(value)s, created_at_ms FROM tagged
        ON CONFLICT (partition_key, execution_id, tag_key) DO UPDATE
       SET tag_value = EXCLUDED.tag_value
)
SELECT locked.partition_key, locked.execution_id, tagged.execution_id IS NOT NULL AS tagged,
       locked.old_value
  FROM locked LEFT JOIN tagged USING (partition_key, execution_id)
"""


class TagChange(msgspec.Struct, frozen=True):
    """Had the execution room for the tag, and which value had the tag before?"""

    tagged: bool
    old_value: str | None


class _Tagged(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    tagged: bool
    old_value: str | None


async def tag(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    key: str,
    value: str,
    namespaces: Sequence[str] | None = None,
) -> dict[ExecutionId, TagChange]:
    """The tag has this value, whatever it had, on each execution that had room for it.

    Executions that do not exist, or are in none of the namespaces, are left out. A claim comes
    before or after: its event has the tag if the event of the change has no lease.
    """
    if namespaces is None:
        locked = await lock_executions(conn, executions)
    else:
        locked = await lock_visible(conn, executions, namespaces)
    rows = await fetch_all(conn, TAG, _Tagged, key=key, value=value, **id_columns(locked))
    return {
        ExecutionId(row.partition_key, row.execution_id): TagChange(row.tagged, row.old_value)
        for row in rows
    }
