"""An admission is given back: its slot is free, and its start stays counted."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, execute
from flowfabric.engine.quotas.quota_policy import policy_id
from flowfabric.ids import ExecutionId, check_type
from flowfabric.limits import quota_policy_partition

RELEASE_ADMISSION: Final[LiteralString] = """
-- quotas.release_admission
UPDATE ff.quota_admitted SET released_at_ms = ff.now_ms()
 WHERE execution_id = %(execution_id)s AND quota_policy_id = %(quota_policy_id)s
   AND released_at_ms IS NULL
   AND NOT EXISTS (SELECT FROM ff.quota_policy p
                    WHERE (p.partition_key, p.quota_policy_id)
                        = (%(policy_partition)s, %(quota_policy_id)s)
                      AND p.namespace <> %(namespace)s)
"""


async def release_admission(
    conn: Connection, limit: str | UUID, execution_id: ExecutionId, *, namespace: str = "default"
) -> None:
    """The execution holds no slot by `check_admission` any more; a repeated call changes nothing.

    The start stays in the window: the request was made. If the execution is admitted again, that
    start is replaced. Raises `ValidationError(invalid_input)`.
    """
    check_type(execution_id, ExecutionId, field="execution_id")
    quota_policy_id = policy_id(limit, namespace)
    await execute(
        conn,
        RELEASE_ADMISSION,
        quota_policy_id=quota_policy_id,
        policy_partition=quota_policy_partition(quota_policy_id),
        execution_id=execution_id.uuid,
        namespace=namespace,
    )
