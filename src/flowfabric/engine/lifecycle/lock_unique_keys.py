"""The unique keys of executions are locked: no other execution takes one until the commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, execute
from flowfabric.ids import ExecutionId, id_columns

LOCK_UNIQUE_KEYS: Final[LiteralString] = """
-- lifecycle.lock_unique_keys
SELECT FROM (SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
                 AS named (partition_key, execution_id)) AS named
 CROSS JOIN LATERAL (  -- by key, also if the plan is made while the tables are empty
       SELECT b.partition_key, b.idempotency_key, e.route_id
         FROM ff.exec_body b JOIN ff.exec_core e USING (partition_key, execution_id)
        WHERE (b.partition_key, b.execution_id) = (named.partition_key, named.execution_id)
          AND b.idempotency_key IS NOT NULL
       OFFSET 0) AS keyed
  JOIN ff.route r ON r.route_id = keyed.route_id
  JOIN ff.exec_idempotency k
    ON (k.partition_key, k.namespace, k.idempotency_key)
     = (keyed.partition_key, r.namespace, keyed.idempotency_key) AND k.scope <> 'window'
 ORDER BY k.partition_key, k.namespace, k.idempotency_key
   FOR NO KEY UPDATE OF k
"""


async def lock_unique_keys(conn: Connection, executions: Sequence[ExecutionId]) -> None:
    """The keys are locked, in the order of `create_execution`, which locks a key before anything.

    An execution that runs once more has its key again. Without the lock a submit that looks at
    the key in the same moment would still see an execution that has ended, and take the key.
    """
    await execute(conn, LOCK_UNIQUE_KEYS, **id_columns(executions))
