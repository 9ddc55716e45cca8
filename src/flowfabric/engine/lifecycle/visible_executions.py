"""Which executions are in namespaces that a caller may see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId, id_columns

# The namespace of an execution never changes: what is read before a lock is true under it.
VISIBLE: Final[LiteralString] = """
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS named (partition_key, execution_id)
 CROSS JOIN LATERAL (  -- by key, also if the plan is made while the tables are empty
       SELECT * FROM ff.exec_core c
        WHERE (c.partition_key, c.execution_id) = (named.partition_key, named.execution_id)
       OFFSET 0) AS e
  JOIN ff.route r USING (route_id)
 WHERE r.namespace = ANY (%(namespaces)s::text[])
"""
VISIBLE_EXECUTIONS: Final[LiteralString] = f"""
-- lifecycle.visible_executions
SELECT e.partition_key, e.execution_id{VISIBLE}"""


class _Row(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID


async def visible_executions(
    conn: Connection, executions: Sequence[ExecutionId], namespaces: Sequence[str] | None
) -> list[ExecutionId]:
    """Those of the executions that exist in one of the namespaces, in the order given.

    All of them, whether they exist or not, if no namespaces are given.
    """
    if namespaces is None:
        return list(executions)
    rows = await fetch_all(
        conn, VISIBLE_EXECUTIONS, _Row, namespaces=list(namespaces), **id_columns(executions)
    )
    seen = {ExecutionId(row.partition_key, row.execution_id) for row in rows}
    return [each for each in executions if each in seen]
