"""Executions are marked: unless they succeed, their compensations run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, execute
from flowfabric.engine.lifecycle.sql.by_key import execution_row
from flowfabric.ids import ExecutionId, id_columns

ARM_COMPENSATIONS: Final[LiteralString] = f"""
-- lifecycle.arm_compensations
UPDATE ff.exec_core e SET compensates = %(armed)s
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS named (partition_key, execution_id)
 WHERE {execution_row("named.partition_key", "named.execution_id")}
   AND e.compensates <> %(armed)s
"""


async def arm_compensations(
    conn: Connection, executions: Sequence[ExecutionId], *, armed: bool
) -> None:
    """The executions have compensations, or with `armed=False` none any more.

    The caller holds the lease, or the locks of `lock_executions`.
    """
    await execute(conn, ARM_COMPENSATIONS, armed=armed, **id_columns(executions))
