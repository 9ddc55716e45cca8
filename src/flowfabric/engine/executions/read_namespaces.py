"""The namespaces of executions: what a caller of one namespace may see is decided by them.

The namespace of an execution never changes, so it may be read before a call and holds during it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId, id_columns

READ_NAMESPACES: Final[LiteralString] = """
-- executions.read_namespaces
WITH asked AS (       -- the executions
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS asked (partition_key, execution_id)
)
SELECT e.partition_key, e.execution_id, r.namespace
  FROM asked JOIN ff.exec_core e USING (partition_key, execution_id)
  JOIN ff.route r USING (route_id)
"""


class _Row(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    namespace: str


async def read_namespaces(
    conn: Connection, executions: Sequence[ExecutionId]
) -> dict[ExecutionId, str]:
    """The namespace of each execution that exists."""
    rows = await fetch_all(conn, READ_NAMESPACES, _Row, **id_columns(executions))
    return {ExecutionId(row.partition_key, row.execution_id): row.namespace for row in rows}
