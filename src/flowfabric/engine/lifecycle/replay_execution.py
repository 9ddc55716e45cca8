"""terminal → runnable: an execution that has ended runs once more."""

from __future__ import annotations

from typing import Any, Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.lifecycle.operator_event import SOMEBODY, check_actor, operator_event
from flowfabric.engine.lifecycle.standing_of import standing_of
from flowfabric.errors import ExecutionNotTerminal, MaxReplaysExhausted
from flowfabric.ids import ExecutionId
from flowfabric.states import LifecyclePhase, OperatorEventType, PublicState

REPLAY_EXECUTION: Final[LiteralString] = """
-- lifecycle.replay_execution
WITH granted AS (     -- when its time was last counted from
    SELECT coalesce(
        (SELECT max(o.occurred_at_ms) FROM ff.operator_event o
          WHERE o.execution_id = %(execution_id)s AND o.partition_key = %(partition_key)s
            AND o.event_type = 'replayed'
            AND o.details ->> 'old_deadline_at_ms' <> o.details ->> 'new_deadline_at_ms'),
        (SELECT e.created_at_ms FROM ff.exec_core e
          WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s))) AS at_ms
), reopened AS (      -- as if no attempt had ended; a deadline that has passed counts from now
    UPDATE ff.exec_core e
       SET lifecycle_phase = 'runnable', blocking_detail = NULL,
           eligibility_state = CASE WHEN %(waits)s THEN 'blocked_by_dependencies'
                                    ELSE 'eligible_now' END,
           blocking_reason = CASE WHEN %(waits)s THEN 'waiting_for_children'
                                  ELSE 'waiting_for_worker' END,
           terminal_outcome = 'none', terminal_at_ms = NULL,
           attempt_state = 'pending_replay_attempt', lease_epoch = e.lease_epoch + 1,
           replay_count = e.replay_count + 1, retry_count = 0, lease_reclaim_count = 0,
           failure_reason = NULL, failure_category = NULL, cancellation_reason = NULL,
           cancelled_by = NULL, progress_pct = NULL, progress_message = NULL,
           deadline_at_ms = CASE WHEN e.deadline_at_ms <= ff.now_ms()
                                 THEN ff.now_ms() + (e.deadline_at_ms - granted.at_ms)
                                 ELSE e.deadline_at_ms END,
           last_mutation_at_ms = ff.now_ms()
      FROM granted
     WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
 RETURNING e.partition_key, e.execution_id, e.attempt_index, e.route_id, e.deadline_at_ms
), reset AS (         -- the attempt that is made again; what it came to stands in the event
    DELETE FROM ff.attempt a USING reopened
     WHERE (a.partition_key, a.execution_id, a.attempt_index)
         = (reopened.partition_key, reopened.execution_id, reopened.attempt_index)
 RETURNING a.outcome, a.worker_instance_id
), called AS (        -- whoever waits for work on its lane
    SELECT ff.wake('lane:' || r.lane_id) FROM reopened JOIN ff.route r USING (route_id)
     WHERE NOT %(waits)s
)
SELECT reopened.deadline_at_ms, reset.outcome, reset.worker_instance_id
  FROM reopened LEFT JOIN reset ON true WHERE (SELECT count(*) FROM called) IS NOT NULL
"""


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """The execution is on its way again."""

    execution_id: ExecutionId
    public_state: PublicState


class _Reopened(msgspec.Struct, frozen=True):
    deadline_at_ms: int | None
    outcome: str | None
    worker_instance_id: str | None


async def replay_execution(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    actor: str = SOMEBODY,
    reason: str | None = None,
    groups_reset: int | None = None,
) -> Replayed:
    """The execution is claimable again, with fresh retries and its last attempt made anew.

    With `groups_reset` it is a skipped member of a flow, whose caller has made so many of its
    groups wait again; it then waits for those.

    Result, failure and cancellation are cleared; the event keeps what they were. A deadline that
    has passed is granted again, counted from now. Raises `NotFound`, `ExecutionNotTerminal`, and
    `MaxReplaysExhausted` once the policy's `max_replay_count` (10) is reached.
    """
    check_actor(actor)
    standing = await standing_of(conn, execution_id)
    if standing.lifecycle_phase != LifecyclePhase.TERMINAL:
        raise ExecutionNotTerminal(execution_id, standing.public_state)
    if standing.replay_count >= standing.max_replay_count:
        raise MaxReplaysExhausted(execution_id, standing.replay_count)
    waits = groups_reset is not None
    state = PublicState.WAITING_CHILDREN if waits else PublicState.WAITING
    branch: dict[str, Any] = {"branch": "normal"}
    if waits:
        branch = {"branch": "skipped_flow_member", "groups_reset": groups_reset}
    reopened = await fetch_one(
        conn,
        REPLAY_EXECUTION,
        _Reopened,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        waits=waits,
    )
    await operator_event(
        conn,
        OperatorEventType.REPLAYED,
        actor=actor,
        reason=reason,
        execution_id=execution_id,
        **branch,
        old_public_state=standing.public_state,
        new_public_state=state,
        old_failure_reason=standing.failure_reason,
        old_cancellation_reason=standing.cancellation_reason,
        old_attempt_outcome=reopened.outcome,
        old_worker_instance_id=reopened.worker_instance_id,
        old_deadline_at_ms=standing.deadline_at_ms,
        new_deadline_at_ms=reopened.deadline_at_ms,
        replay_count=standing.replay_count + 1,
    )
    return Replayed(execution_id=execution_id, public_state=state)
