"""What executions held back that have given up their leases is claimable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.quotas.unblock_keys import UnblockedKeys
from flowfabric.ids import ExecutionId

UNBLOCK_KEYS_OF: Final[LiteralString] = """
-- quotas.unblock_keys_of
SELECT ff.unblock_quota_keys(ARRAY(
    SELECT DISTINCT e.quota_key_id
      FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
           AS given (partition_key, execution_id)
     CROSS JOIN LATERAL (  -- by key, whatever the statistics say
           SELECT c.quota_key_id FROM ff.exec_core c
            WHERE (c.partition_key, c.execution_id) = (given.partition_key, given.execution_id)
           OFFSET 0) AS e
     WHERE e.quota_key_id IS NOT NULL)) AS moved
"""


async def unblock_keys_of(conn: Connection, executions: Sequence[ExecutionId]) -> int:
    """As `unblock_keys`, for the keys that these executions have; how many are claimable now.

    For a holder that does not know the keys: it calls this once its outcomes are committed.
    """
    if not executions:
        return 0
    answer = await fetch_one(
        conn,
        UNBLOCK_KEYS_OF,
        UnblockedKeys,
        partition_key=[each.partition_key for each in executions],
        execution_id=[each.uuid for each in executions],
    )
    return answer.moved
