"""any non-terminal → terminal: the one way an execution ends."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.engine.lifecycle.sql.attempt import save_attempt
from flowfabric.engine.lifecycle.sql.events import record_completion_event, record_lease_event
from flowfabric.engine.lifecycle.sql.wake import WAKE_COMPLETION, wake_holders

# An execution that is skipped while it runs cancels the attempt: no attempt is ever skipped.
ATTEMPT_OUTCOME: Final[LiteralString] = """CASE outcome WHEN 'skipped' THEN 'cancelled'
           ELSE outcome END"""

ENDED: Final[LiteralString] = (
    """, ended AS (          -- unless it has ended meanwhile
    UPDATE ff.exec_core e
       SET lifecycle_phase = 'terminal', eligibility_state = 'not_applicable',
           blocking_reason = 'none', blocking_detail = NULL, resume_pending = false,
           lease_lost = false, terminal_outcome = ending.outcome, terminal_at_ms = ff.now_ms(),
           last_mutation_at_ms = ff.now_ms(), delay_until_ms = NULL, not_before_ms = NULL,
           attempt_state = CASE WHEN e.total_attempt_count > 0
                                THEN 'attempt_terminal' ELSE e.attempt_state END,
           lease_epoch = e.lease_epoch + (ending.leased AND ending.bumps_epoch)::integer,
           lease_expires_at_ms = NULL, worker_id = NULL, worker_instance_id = NULL,
           attempt_timeout_at_ms = NULL,
           failure_reason = ending.failure_reason, failure_category = ending.failure_category,
           cancellation_reason = ending.cancellation_reason, cancelled_by = ending.cancelled_by
      FROM ending
     WHERE (e.partition_key, e.execution_id) = (ending.partition_key, ending.execution_id)
       AND e.lifecycle_phase <> 'terminal'
 RETURNING ending.*
), attempt_closed AS (     -- the attempt that ran until now"""
    + save_attempt("ended", outcome=ATTEMPT_OUTCOME, where="leased", with_result=True)
    + """), attempt_amended AS (    -- the attempt that was interrupted, maybe while this waited
    INSERT INTO ff.attempt AS a (
           partition_key, execution_id, attempt_index, lease_id, lease_epoch, started_at_ms,
           ended_at_ms, attempt_type, outcome, worker_id, worker_instance_id)
    SELECT partition_key, execution_id, attempt_index, lease_id, lease_epoch,
           attempt_started_at_ms, ff.now_ms(), attempt_type, """
    + ATTEMPT_OUTCOME
    + """, '', ''
      FROM ended WHERE NOT leased AND attempt_state = 'attempt_interrupted'
        ON CONFLICT (partition_key, execution_id, attempt_index) DO UPDATE
       SET outcome = EXCLUDED.outcome, ended_at_ms = EXCLUDED.ended_at_ms
), lease_end_recorded AS ("""
)
"""Followed by the INSERT of the lease events."""

COMPLETION_RECORDED: Final[LiteralString] = (
    """), completion_recorded AS ("""
    + record_completion_event("ended", wakes=WAKE_COMPLETION)
    + """)"""
)


def end(
    source: LiteralString,
    *,
    where: LiteralString = "true",
    outcome: LiteralString,
    result: LiteralString = "NULL::bytea",
    result_encoding: LiteralString = "NULL::text",
    failure_reason: LiteralString = "NULL::text",
    failure_category: LiteralString = "NULL::text",
    failure_detail: LiteralString = "NULL::text",
    cancellation_reason: LiteralString = "NULL::text",
    cancelled_by: LiteralString = "NULL::text",
    bumps_epoch: LiteralString = "true",
    lease_event: LiteralString = "'revoked'",
    lease_reason: LiteralString = "NULL::text",
    by_holder: bool = False,
) -> LiteralString:
    """The CTEs that end those rows of `source` for which `where` holds; `ended` are these rows.

    `source` has the columns of `fence.LOCKED_COLUMNS`, and the rows are locked. Afterwards the
    execution is terminal, its attempt is closed, one completion event is written and, if a lease
    was held, one lease event. A lease that was held is void at once if `bumps_epoch`; a holder that
    ends its own lease keeps the epoch, so that its repeated call is recognised. Unless the end is
    reported `by_holder`, the workers that held the leases are woken, to stop the handlers.
    """
    return (
        f""", ending AS (
    SELECT {source}.*, {outcome} AS outcome, {result} AS result,
           {result_encoding} AS result_encoding,
           {failure_reason} AS failure_reason, {failure_category} AS failure_category,
           {failure_detail} AS failure_detail, {cancellation_reason} AS cancellation_reason,
           {cancelled_by} AS cancelled_by, {bumps_epoch} AS bumps_epoch,
           {lease_event} AS lease_event, {lease_reason} AS lease_reason
      FROM {source} WHERE {where}
)"""
        + ENDED
        + record_lease_event(
            "ended",
            event_type="lease_event",
            reason="lease_reason",
            where="leased",
            wakes="" if by_holder else wake_holders("ended"),
        )
        + COMPLETION_RECORDED
    )
