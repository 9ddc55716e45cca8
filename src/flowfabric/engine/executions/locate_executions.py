"""The full ids of executions of which only the uuid is known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId, storable_text

# The uuid is the second column of the primary key: each partition is one look into its index.
LOCATE_EXECUTIONS: Final[LiteralString] = """
-- executions.locate_executions
SELECT e.partition_key, e.execution_id
  FROM ff.execution e JOIN ff.route r USING (route_id)
 WHERE e.partition_key = ANY (%(partition_key)s::smallint[])
   AND e.execution_id = ANY (%(execution_id)s::uuid[])
   AND (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s)
 ORDER BY e.partition_key, e.execution_id
"""


class _Row(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID


async def locate_executions(
    conn: Connection,
    uuids: Iterable[UUID],
    *,
    namespace: str | None = None,
    partitions: int = 256,
) -> dict[UUID, list[ExecutionId]]:
    """The executions with these uuids: of one namespace, or of all.

    Almost always there is one for each uuid. A uuid that no execution has is left out; a uuid that
    a client used in several partitions has them all.
    """
    if namespace is not None:
        storable_text(namespace, field="namespace")
    rows = await fetch_all(
        conn,
        LOCATE_EXECUTIONS,
        _Row,
        partition_key=list(range(partitions)),
        execution_id=list(uuids),
        namespace=namespace,
    )
    found: dict[UUID, list[ExecutionId]] = {}
    for row in rows:
        execution_id = ExecutionId(row.partition_key, row.execution_id)
        found.setdefault(row.execution_id, []).append(execution_id)
    return found
