"""The ids of the executions of one partition, page by page."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, PartitionKey
from flowfabric.pages import page_size

LIST_EXECUTIONS: Final[LiteralString] = """
-- executions.list_executions
SELECT execution_id FROM ff.execution
 WHERE partition_key = %(partition_key)s
   AND (%(after)s::uuid IS NULL OR execution_id > %(after)s::uuid)
 ORDER BY execution_id LIMIT %(limit)s
"""


class ExecutionPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some ids, and the cursor for the next page if there is one."""

    executions: list[ExecutionId]
    next_cursor: ExecutionId | None


class _Row(msgspec.Struct, frozen=True):
    execution_id: UUID


async def list_executions(
    conn: Connection,
    partition: PartitionKey,
    *,
    cursor: ExecutionId | None = None,
    limit: int = 100,
) -> ExecutionPage:
    """At most `limit` (1000) ids of one partition after `cursor`, in the order of their uuid."""
    if partition.family != "fp":
        raise invalid_input("partition_key", str(partition), "holds no executions")
    if cursor is not None and cursor.partition_key != partition.index:
        raise invalid_input("cursor", str(cursor), f"does not belong to {partition}")
    size = page_size(limit)
    if size == 0:
        return ExecutionPage(executions=[], next_cursor=None)
    rows = await fetch_all(
        conn,
        LIST_EXECUTIONS,
        _Row,
        partition_key=partition.index,
        after=None if cursor is None else cursor.uuid,
        limit=size + 1,
    )
    found = [ExecutionId(partition.index, row.execution_id) for row in rows[:size]]
    return ExecutionPage(executions=found, next_cursor=found[-1] if len(rows) > size else None)
