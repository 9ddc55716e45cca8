"""terminal → runnable: executions that have ended run once more."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lock_executions import LockedExecution, id_columns
from flowfabric.engine.lifecycle.sql.by_key import execution_row
from flowfabric.engine.lifecycle.sql.queue import queued
from flowfabric.engine.lifecycle.sql.wake import wake_lanes
from flowfabric.errors import (
    EngineError,
    ExecutionNotTerminal,
    LaneNotAccepting,
    MaxReplaysExhausted,
    UniqueKeyTaken,
)
from flowfabric.ids import ExecutionId
from flowfabric.states import LaneState, LifecyclePhase

RESTART: Final[LiteralString] = (
    """
-- lifecycle.restart
WITH named AS (       -- each, and whether it waits for its upstreams first
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
                         %(waits)s::boolean[]) AS named (partition_key, execution_id, waits)
), seen AS (          -- the locked rows, and the instant that each deadline was counted from
    SELECT e.partition_key, e.execution_id, named.waits, e.failure_reason,
           CASE e.terminal_outcome WHEN 'success' THEN 'completed' ELSE e.terminal_outcome END
               AS public_state,
           e.cancellation_reason, e.deadline_at_ms,
           coalesce((SELECT max(o.occurred_at_ms) FROM ff.operator_event o
                      WHERE o.execution_id = e.execution_id AND o.partition_key = e.partition_key
                        AND o.event_type = 'replayed'
                        AND o.details ->> 'old_deadline_at_ms'
                         <> o.details ->> 'new_deadline_at_ms'),
                    e.created_at_ms) AS counted_from_ms
      FROM named JOIN ff.exec_core e ON """
    + execution_row("named.partition_key", "named.execution_id")
    + """
     ORDER BY named.partition_key, named.execution_id FOR NO KEY UPDATE OF e
), restarted AS (     -- as if no attempt had ended; a deadline that has passed counts from now
    UPDATE ff.exec_core e
       SET lifecycle_phase = 'runnable', blocking_detail = NULL,
           eligibility_state = CASE WHEN seen.waits THEN 'blocked_by_dependencies'
                                    ELSE 'eligible_now' END,
           blocking_reason = CASE WHEN seen.waits THEN 'waiting_for_children'
                                  ELSE 'waiting_for_worker' END,
           terminal_outcome = 'none', terminal_at_ms = NULL,
           attempt_state = 'pending_replay_attempt', lease_epoch = e.lease_epoch + 1,
           replay_count = e.replay_count + 1, retry_count = 0, lease_reclaim_count = 0,
           infra_release_count = 0, flow_cancelled = false,
           failure_reason = NULL, failure_category = NULL, cancellation_reason = NULL,
           cancelled_by = NULL, progress_pct = NULL, progress_message = NULL,
           deadline_at_ms = CASE WHEN e.deadline_at_ms <= ff.now_ms()
                                 THEN ff.now_ms() + (e.deadline_at_ms - seen.counted_from_ms)
                                 ELSE e.deadline_at_ms END,
           last_mutation_at_ms = ff.now_ms()
      FROM seen
     WHERE """
    + execution_row("seen.partition_key", "seen.execution_id")
    + """
 RETURNING e.partition_key, e.execution_id, e.attempt_index, e.route_id, e.priority,
           e.created_at_ms, e.eligibility_state, e.deadline_at_ms, e.quota_key_id, e.budget_ids,
           CASE WHEN seen.waits THEN 'waiting_children' ELSE 'waiting' END AS public_state,
           e.replay_count, seen.waits, seen.public_state AS old_public_state,
           seen.failure_reason, seen.cancellation_reason,
           seen.deadline_at_ms AS old_deadline_at_ms
)"""
    + queued("restarted")
    + f""", reset AS (   -- without a result; the attempt that is made again will replace the row
    UPDATE ff.attempt a SET result = NULL FROM restarted
     WHERE a.partition_key = ANY (ARRAY[restarted.partition_key])
       AND (a.execution_id, a.attempt_index) = (restarted.execution_id, restarted.attempt_index)
 RETURNING a.partition_key, a.execution_id, a.outcome, a.worker_instance_id
), key_taken AS (     -- its unique key is its own again
    UPDATE ff.exec_idempotency k SET execution_id = restarted.execution_id
      FROM restarted
      JOIN ff.exec_body b ON b.partition_key = ANY (ARRAY[restarted.partition_key])
       AND b.execution_id = restarted.execution_id
      JOIN ff.route r ON r.route_id = restarted.route_id
     WHERE (k.partition_key, k.namespace, k.idempotency_key)
         = (b.partition_key, r.namespace, b.idempotency_key)
       AND k.scope <> 'window' AND k.execution_id <> restarted.execution_id
)
SELECT restarted.partition_key, restarted.execution_id, restarted.old_public_state,
       restarted.public_state AS new_public_state,
       restarted.failure_reason AS old_failure_reason,
       restarted.cancellation_reason AS old_cancellation_reason,
       reset.outcome AS old_attempt_outcome, reset.worker_instance_id AS old_worker_instance_id,
       restarted.old_deadline_at_ms, restarted.deadline_at_ms AS new_deadline_at_ms,
       restarted.replay_count, {wake_lanes("restarted", where="NOT waits")} AS lanes
  FROM restarted LEFT JOIN reset USING (partition_key, execution_id)
"""
)


class Restarted(msgspec.Struct, frozen=True):
    """The execution is runnable; `old_…` is what was true of its end, and is cleared now."""

    partition_key: int
    execution_id: UUID
    old_public_state: str
    new_public_state: str
    old_failure_reason: str | None
    old_cancellation_reason: str | None
    old_attempt_outcome: str | None
    old_worker_instance_id: str | None
    old_deadline_at_ms: int | None
    new_deadline_at_ms: int | None
    replay_count: int
    lanes: int

    def facts(self, *, groups_reset: int | None = None) -> dict[str, Any]:
        """The details of the operator event that records the restart.

        `groups_reset` is given for a member of a flow that was skipped: how many of its joins were
        made to wait again.
        """
        facts = msgspec.structs.asdict(self)
        del facts["partition_key"], facts["execution_id"], facts["lanes"]
        if groups_reset is None:
            return {"branch": "normal", **facts}
        return {"branch": "skipped_flow_member", "groups_reset": groups_reset, **facts}


def restart_refusal(seen: LockedExecution) -> EngineError | None:
    """Why the execution cannot run once more, if it cannot.

    It has not ended, was replayed too often, its lane takes no new work, or another execution has
    its unique key now.
    """
    if seen.lifecycle_phase != LifecyclePhase.TERMINAL:
        return ExecutionNotTerminal(seen.id, seen.public_state)
    if seen.replay_count >= seen.max_replay_count:
        return MaxReplaysExhausted(seen.id, seen.replay_count)
    if not LaneState(seen.lane_state).accepts:
        return LaneNotAccepting(seen.lane_id, seen.lane_state)
    if seen.key_holder is not None:
        holder = ExecutionId.parse(seen.key_holder)
        return UniqueKeyTaken(seen.idempotency_key or "", execution_id=holder)
    return None


async def restart(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    waiting: Collection[ExecutionId] = (),
) -> dict[ExecutionId, Restarted]:
    """The executions are claimable, with fresh retries and their last attempt made anew.

    Those among `waiting` wait for their upstreams instead. Result, failure and cancellation are
    cleared. A deadline that has passed is granted again, counted from now. The caller holds the
    locks and has looked at `restart_refusal`.
    """
    rows = await fetch_all(
        conn,
        RESTART,
        Restarted,
        waits=[each in waiting for each in executions],
        **id_columns(executions),
    )
    found = {ExecutionId(row.partition_key, row.execution_id): row for row in rows}
    return {each: found[each] for each in executions}
