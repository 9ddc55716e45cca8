"""The executions that have a uuid, wherever they are."""

from __future__ import annotations

from uuid import UUID

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.locate_executions import locate_executions
from flowfabric.ids import ExecutionId


async def find_execution(
    conn: Connection, uuid: UUID, *, namespace: str | None = None, partitions: int = 256
) -> ExecutionId | None:
    """The execution with this uuid, of one namespace or of all; the first of several.

    Each partition costs one look into the index of the primary key.
    """
    found = await locate_executions(conn, [uuid], namespace=namespace, partitions=partitions)
    return found[uuid][0] if uuid in found else None
