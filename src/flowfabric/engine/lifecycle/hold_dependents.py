"""runnable → runnable(blocked by dependencies): members wait for their dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.ids import ExecutionId

HOLD_DEPENDENTS: Final[LiteralString] = """
-- lifecycle.hold_dependents
WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS named (partition_key, execution_id)
), blocked AS (       -- a delay that is not over is kept for afterwards
    UPDATE ff.exec_core e
       SET eligibility_state = 'blocked_by_dependencies', blocking_reason = 'waiting_for_children',
           blocking_detail = NULL, not_before_ms = coalesce(e.delay_until_ms, e.not_before_ms),
           delay_until_ms = NULL,
           last_mutation_at_ms = ff.now_ms()
      FROM named
     WHERE (e.partition_key, e.execution_id) = (named.partition_key, named.execution_id)
       AND e.lifecycle_phase = 'runnable'
       AND e.eligibility_state NOT IN ('blocked_by_dependencies', 'blocked_by_operator')
 RETURNING e.partition_key, e.execution_id
), noted AS (         -- an operator's block stays; the wait begins once it is lifted
    UPDATE ff.exec_core e
       SET not_before_ms = coalesce(e.not_before_ms, ff.now_ms()),
           last_mutation_at_ms = ff.now_ms()
      FROM named
     WHERE (e.partition_key, e.execution_id) = (named.partition_key, named.execution_id)
       AND e.blocking_reason = 'paused_by_operator'
), withdrawn AS (     -- a grant issued before is void
    DELETE FROM ff.claim_grant g USING blocked
     WHERE (g.partition_key, g.execution_id) = (blocked.partition_key, blocked.execution_id)
)
SELECT count(*) AS moved FROM blocked
"""


async def hold_dependents(conn: Connection, executions: Sequence[ExecutionId]) -> int:
    """Those that are not leased are not claimable until they are promoted; how many.

    One that an operator blocked stays blocked, and waits for its dependencies once it is unblocked.
    """
    return (
        await fetch_one(
            conn,
            HOLD_DEPENDENTS,
            Moved,
            partition_key=[each.partition_key for each in executions],
            execution_id=[each.uuid for each in executions],
        )
    ).moved
