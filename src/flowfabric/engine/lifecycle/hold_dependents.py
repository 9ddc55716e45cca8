"""runnable → runnable(blocked by dependencies): members wait for their dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.lifecycle.sql.queue import dequeued
from flowfabric.ids import ExecutionId, id_columns

HOLD_DEPENDENTS: Final[LiteralString] = (
    """
-- lifecycle.hold_dependents
WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS named (partition_key, execution_id)
), seen AS (          -- those that run are not touched
    SELECT e.partition_key, e.execution_id
      FROM ff.execution e JOIN named USING (partition_key, execution_id)
     WHERE e.lifecycle_phase = 'runnable'
), blocked AS (       -- a delay is kept, to apply once the dependencies are satisfied
    UPDATE ff.exec_core e
       SET eligibility_state = 'blocked_by_dependencies', blocking_reason = 'waiting_for_children',
           blocking_detail = NULL, not_before_ms = coalesce(e.delay_until_ms, e.not_before_ms),
           delay_until_ms = NULL,
           last_mutation_at_ms = ff.now_ms()
      FROM seen
     WHERE (e.partition_key, e.execution_id) = (seen.partition_key, seen.execution_id)
       AND e.eligibility_state NOT IN ('blocked_by_dependencies', 'blocked_by_operator')
 RETURNING e.partition_key, e.execution_id, e.route_id, e.priority, e.created_at_ms
)"""
    + dequeued("blocked")
    + """, noted AS (         -- an operator's block stays; the execution is held once it is lifted
    UPDATE ff.exec_core e
       SET not_before_ms = coalesce(e.not_before_ms, ff.now_ms()),
           last_mutation_at_ms = ff.now_ms()
      FROM named
     WHERE (e.partition_key, e.execution_id) = (named.partition_key, named.execution_id)
       AND e.blocking_reason = 'paused_by_operator'
), grants_deleted AS (
    DELETE FROM ff.claim_grant g USING blocked
     WHERE (g.partition_key, g.execution_id) = (blocked.partition_key, blocked.execution_id)
)
SELECT count(*) AS moved FROM blocked
"""
)


async def hold_dependents(conn: Connection, executions: Sequence[ExecutionId]) -> int:
    """The runnable ones of the executions are not claimable until they are promoted; how many.

    An execution that an operator blocked stays blocked; once unblocked, it waits for its
    dependencies.
    """
    return (
        await fetch_one(
            conn,
            HOLD_DEPENDENTS,
            Moved,
            **id_columns(executions),
        )
    ).moved
