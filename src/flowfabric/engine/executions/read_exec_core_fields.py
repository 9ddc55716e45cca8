"""Columns of one execution, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, PartitionKey

READ_EXEC_CORE_FIELDS: Final[LiteralString] = """
-- executions.read_exec_core_fields
SELECT name, to_jsonb(e) ->> name AS value
  FROM unnest(%(names)s::text[]) AS name
  LEFT JOIN ff.execution e
    ON (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""


class _Field(msgspec.Struct, frozen=True):
    name: str
    value: str | None


async def read_exec_core_fields(
    conn: Connection, partition: PartitionKey, execution_id: ExecutionId, names: Sequence[str]
) -> dict[str, str | None]:
    """The named columns as text; None for a column that is null or does not exist."""
    if partition != PartitionKey("fp", execution_id.partition_key):
        raise invalid_input("partition_key", str(partition), f"is not that of {execution_id}")
    if not names:
        return {}
    rows = await fetch_all(
        conn,
        READ_EXEC_CORE_FIELDS,
        _Field,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        names=list(names),
    )
    return {row.name: row.value for row in rows}
