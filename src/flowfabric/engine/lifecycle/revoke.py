"""active → runnable: executions are taken away from their holders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lock_executions import id_columns
from flowfabric.engine.lifecycle.sql.fence import STANDING
from flowfabric.engine.lifecycle.sql.requeue import CALLED, RELINQUISH
from flowfabric.ids import ExecutionId

REVOKE: Final[LiteralString] = (
    """
-- lifecycle.revoke
WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS named (partition_key, execution_id)
), seen AS (          -- the locked rows
    SELECT"""
    + STANDING
    + """
      FROM ff.exec_core e JOIN named USING (partition_key, execution_id)
     ORDER BY e.partition_key, e.execution_id FOR NO KEY UPDATE OF e
), leaving AS (
    SELECT seen.*, NULL::bigint AS until_ms, 'waiting_for_worker' AS waiting_for,
           'lease_revoked' AS attempt_outcome, 'attempt_interrupted' AS next_attempt_state,
           false AS retries, true AS rotates, true AS loses, 'revoked' AS lease_event,
           'operator' AS lease_reason, NULL::text AS failure_reason,
           NULL::text AS failure_category, NULL::text AS failure_detail
      FROM seen WHERE leased
), """
    + RELINQUISH
    + """
SELECT left_over.partition_key, left_over.execution_id FROM left_over WHERE """
    + CALLED
)


class _Requeued(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID


async def revoke(conn: Connection, executions: Sequence[ExecutionId]) -> set[ExecutionId]:
    """Every lease that is held is void, and its execution claimable; which executions.

    The epoch of each is bumped, so that its holder's writes are refused.
    """
    rows = await fetch_all(conn, REVOKE, _Requeued, **id_columns(executions))
    return {ExecutionId(row.partition_key, row.execution_id) for row in rows}
