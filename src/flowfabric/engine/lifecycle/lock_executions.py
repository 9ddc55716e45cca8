"""Executions that are about to be judged: nobody moves them until the transaction ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.ids import ExecutionId

LOCK_EXECUTIONS: Final[LiteralString] = """
-- lifecycle.lock_executions
WITH locked AS (      -- in one order
    SELECT FROM ff.exec_core e
      JOIN unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
           AS named (partition_key, execution_id) USING (partition_key, execution_id)
     ORDER BY e.partition_key, e.execution_id FOR NO KEY UPDATE OF e
)
SELECT count(*) AS moved FROM locked
"""


async def lock_executions(conn: Connection, executions: Sequence[ExecutionId]) -> None:
    """They stand still; what a later statement of the transaction sees of them stays true."""
    await fetch_one(
        conn,
        LOCK_EXECUTIONS,
        Moved,
        partition_key=[each.partition_key for each in executions],
        execution_id=[each.uuid for each in executions],
    )
