"""suspended → runnable: what the executions waited for is there, and a worker can go on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.sql.by_key import (
    execution_row,
    open_suspension,
    open_waitpoints,
)
from flowfabric.engine.lifecycle.sql.queue import queued
from flowfabric.engine.lifecycle.sql.wake import WAKE_COMPLETION, wake_lanes
from flowfabric.ids import ExecutionId, id_columns
from flowfabric.policy import milliseconds
from flowfabric.states import PublicState

# The completion event tells subscribers that the execution can go on. It has no flow and counts as
# dispatched: no edge is resolved by it.
RESUME: Final[LiteralString] = (
    """
-- lifecycle.resume
WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
                         %(delay_ms)s::bigint[], %(closer)s::uuid[], %(satisfiers)s::text[],
                         %(signals)s::integer[])
        AS named (partition_key, execution_id, delay_ms, closer, satisfiers, signals)
), resumed AS (       -- claimable now or after the delay; a member of a cancelled flow is parked
    UPDATE ff.exec_core e
       SET lifecycle_phase = 'runnable', resume_pending = NOT e.flow_cancelled,
           blocking_detail = NULL, signal_seq = e.signal_seq + named.signals,
           eligibility_state = CASE WHEN e.flow_cancelled THEN 'blocked_by_operator'
                                    WHEN named.delay_ms > 0 THEN 'not_eligible_until_time'
                                    ELSE 'eligible_now' END,
           blocking_reason = CASE WHEN e.flow_cancelled THEN 'paused_by_flow_cancel'
                                  WHEN named.delay_ms > 0 THEN 'waiting_for_resume_delay'
                                  ELSE 'waiting_for_worker' END,
           delay_until_ms = CASE WHEN named.delay_ms > 0 AND NOT e.flow_cancelled
                                 THEN ff.now_ms() + named.delay_ms END,
           last_mutation_at_ms = ff.now_ms()
      FROM named
     WHERE """
    + execution_row("named.partition_key", "named.execution_id")
    + """
       AND e.lifecycle_phase = 'suspended'
 RETURNING named.closer, named.satisfiers, e.partition_key, e.execution_id, e.route_id, e.tags,
           e.priority, e.created_at_ms, e.deadline_at_ms, e.quota_key_id, e.budget_ids,
           e.eligibility_state, e.resume_pending,
           CASE e.eligibility_state WHEN 'blocked_by_operator' THEN 'waiting'
                WHEN 'not_eligible_until_time' THEN 'delayed' ELSE 'resumable' END AS public_state
)"""
    + queued("resumed")
    + """, suspension_closed AS (
    UPDATE ff.suspension_current s
       SET closed_at_ms = ff.now_ms(), timeout_at_ms = NULL, close_reason = %(close_reason)s,
           satisfied_at_ms = CASE WHEN resumed.satisfiers IS NULL THEN s.satisfied_at_ms
                                  ELSE ff.now_ms() END,
           closer_signal_id = resumed.closer,
           all_satisfier_signals = resumed.satisfiers::jsonb
      FROM resumed
     WHERE """
    + open_suspension("resumed.partition_key", "resumed.execution_id")
    + """
 RETURNING s.partition_key, s.execution_id, s.keeps_waitpoints
), waitpoints_closed AS ( -- or pending again, for a handler that may wait for them once more
    UPDATE ff.waitpoint_pending w
       SET state = CASE WHEN s.keeps_waitpoints THEN 'pending' ELSE 'closed' END,
           closed_at_ms = CASE WHEN s.keeps_waitpoints THEN NULL ELSE ff.now_ms() END,
           close_reason = CASE WHEN s.keeps_waitpoints THEN NULL ELSE %(close_reason)s END,
           suspension_id = CASE WHEN s.keeps_waitpoints THEN NULL ELSE w.suspension_id END,
           activated_at_ms = CASE WHEN s.keeps_waitpoints THEN NULL ELSE w.activated_at_ms END
      FROM suspension_closed s
     WHERE """
    + open_waitpoints("s.partition_key", "s.execution_id")
    + """
       AND (w.state <> 'pending' OR NOT s.keeps_waitpoints)
), completion_recorded AS (
    INSERT INTO ff.completion_event (
           execution_id, route_id, created_at_ms, occurred_at_ms, partition_key, outcome, tags,
           dispatched_at_ms)
    SELECT execution_id, route_id, created_at_ms, ff.now_ms(), partition_key, 'resumable',
           nullif(tags, '{}'), ff.now_ms()
      FROM resumed WHERE resume_pending AND %(records_event)s
 RETURNING """
    + WAKE_COMPLETION
    + """
)
SELECT partition_key, execution_id, public_state, """
    + wake_lanes("resumed", where="eligibility_state = 'eligible_now'")
    + """ AS lanes FROM resumed
"""
)


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """One execution that is to go on, after `delay`.

    `closer_signal_id` is the signal that satisfied its condition, and `satisfiers` a JSON array of
    all that did; both None if no signal did. `signals` are counted for it, as by `number_signals`.
    """

    execution_id: ExecutionId
    delay: float | timedelta = 0
    closer_signal_id: UUID | None = None
    satisfiers: str | None = None
    signals: int = 0


class _Resumed(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    public_state: str
    lanes: int


async def resume(
    conn: Connection,
    resumes: Sequence[Resume],
    *,
    close_reason: str = "resumed",
    records_event: bool = True,
) -> dict[ExecutionId, PublicState]:
    """The suspended ones among these executions can be claimed, and their suspensions are closed.

    Returns their states; executions that are not suspended are left alone. Waitpoints are closed,
    or pending again where the suspension keeps them. A member of a cancelled flow is ended soon,
    instead of being claimable. The caller holds the locks of `lock_executions`.
    """
    if not resumes:
        return {}
    rows = await fetch_all(
        conn,
        RESUME,
        _Resumed,
        delay_ms=[milliseconds(each.delay, field="delay") for each in resumes],
        closer=[each.closer_signal_id for each in resumes],
        satisfiers=[each.satisfiers for each in resumes],
        signals=[each.signals for each in resumes],
        close_reason=close_reason,
        records_event=records_event,
        **id_columns([each.execution_id for each in resumes]),
    )
    return {
        ExecutionId(row.partition_key, row.execution_id): PublicState(row.public_state)
        for row in rows
    }
