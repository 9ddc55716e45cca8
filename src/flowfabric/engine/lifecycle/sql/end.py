"""any non-terminal → terminal: the one way an execution ends."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.engine.lifecycle.sql.attempt import save_attempt
from flowfabric.engine.lifecycle.sql.by_key import execution_row, lease_row
from flowfabric.engine.lifecycle.sql.events import record_completion_event, record_lease_event
from flowfabric.engine.lifecycle.sql.queue import slot_freed
from flowfabric.engine.lifecycle.sql.wake import (
    WAKE_COMPLETION,
    WAKE_COMPLETION_IF_ASKED,
    wake_holders,
)

# An execution that is skipped while it runs cancels the attempt: no attempt is ever skipped.
ATTEMPT_OUTCOME: Final[LiteralString] = """CASE outcome WHEN 'skipped' THEN 'cancelled'
           ELSE outcome END"""

_ATTEMPT_ENDED: Final[LiteralString] = """e.total_attempt_count > 0
                                THEN 'attempt_terminal' ELSE e.attempt_state END"""

_ENDED_ROW: Final[LiteralString] = """e.route_id, e.flow_id, e.tags, e.created_at_ms,
           e.attempt_index AS last_attempt, e.attempt_type AS last_type, e.lease_id AS last_lease,
           e.lease_epoch AS last_epoch, e.attempt_started_at_ms AS last_started_at_ms,
           e.terminal_at_ms AS ended_at_ms"""

ATTEMPT_AMENDED: Final[LiteralString] = (
    """, attempt_amended AS (    -- the attempt that was interrupted, maybe while this waited
    INSERT INTO ff.attempt AS a (
           partition_key, execution_id, attempt_index, lease_id, lease_epoch, started_at_ms,
           ended_at_ms, attempt_type, outcome, worker_id, worker_instance_id)
    SELECT partition_key, execution_id, last_attempt, last_lease, last_epoch,
           last_started_at_ms, ended_at_ms, last_type, """
    + ATTEMPT_OUTCOME
    + """, '', ''
      FROM ended WHERE NOT leased AND attempt_state = 'attempt_interrupted'
        ON CONFLICT (partition_key, execution_id, attempt_index) DO UPDATE
       SET outcome = EXCLUDED.outcome, ended_at_ms = EXCLUDED.ended_at_ms
)"""
)
"""For executions that are ended by others than their holders."""


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
    lease_event: LiteralString = "'revoked'",
    lease_reason: LiteralString = "NULL::text",
) -> LiteralString:
    """The CTEs that end those rows of `source` for which `where` holds; `ended` are these rows.

    `source` has the columns of `fence.LOCKED_COLUMNS`. A row whose lease ended before this
    statement came to lock it is left alone. Afterwards the execution is terminal, its attempt is
    closed, one completion event is written and, if a lease was held, one lease event. A lease that
    was held is void at once. The workers that held the leases are woken, to stop the handlers.
    """
    return (
        f""", ending AS (
    SELECT {source}.*, {outcome} AS outcome, {result} AS result,
           {result_encoding} AS result_encoding,
           {failure_reason} AS failure_reason, {failure_category} AS failure_category,
           {failure_detail} AS failure_detail, {cancellation_reason} AS cancellation_reason,
           {cancelled_by} AS cancelled_by,
           {lease_event} AS lease_event, {lease_reason} AS lease_reason
      FROM {source} WHERE {where}
){_ended_set("ff.now_ms()")},
           attempt_state = CASE WHEN ending.leased OR {_ATTEMPT_ENDED},
           attempt_index = coalesce(ending.attempt_index, e.attempt_index),
           attempt_type = coalesce(ending.attempt_type, e.attempt_type),
           attempt_started_at_ms = coalesce(ending.attempt_started_at_ms, e.attempt_started_at_ms),
           started_at_ms = coalesce(e.started_at_ms, ending.attempt_started_at_ms),
           total_attempt_count = greatest(e.total_attempt_count, ending.attempt_index + 1),
           lease_reclaim_count = coalesce(ending.lease_reclaim_count, e.lease_reclaim_count),
           lease_epoch = coalesce(ending.lease_epoch + 1, e.lease_epoch),
           lease_id = coalesce(ending.lease_id, e.lease_id)
      FROM ending
     WHERE {execution_row("ending.partition_key", "ending.execution_id")}
       AND e.lifecycle_phase <> 'terminal'
       AND (NOT ending.leased OR e.lease_epoch = ending.lease_epoch - 1)
 RETURNING ending.*, {_ENDED_ROW}, e.priority, e.quota_key_id
)"""
        + _lease_ended("ended.quota_key_id, ended.lease_event", where="ended.leased")
        + save_attempt(
            "attempt_closed",
            "ended",
            outcome=ATTEMPT_OUTCOME,
            where="leased",
            with_result=True,
            at="ended_at_ms",
        )
        + ATTEMPT_AMENDED
        + ", lease_end_recorded AS ("
        + record_lease_event(
            "lease_ended",
            event_type="lease_event",
            reason="lease_reason",
            at="ended_at_ms",
            wakes=wake_holders("ended"),
        )
        + "), completion_recorded AS ("
        + record_completion_event("ended", wakes=WAKE_COMPLETION)
        + ")"
        + slot_freed("lease_ended")
    )


def end_held(
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
    bumps_epoch: bool = False,
    lease_reason: LiteralString,
    answers: LiteralString = "",
) -> LiteralString:
    """As `end`, for executions that their holders end: the rows of `fence.holding`.

    `ended` has `ordinal` and the columns of `source` that `answers` names. A holder that ends its
    own lease keeps the epoch, so that its repeated call is recognised, unless `bumps_epoch`. The
    statement has a parameter `notifies`: whether it notifies those that wait for the end itself.

    It is the end of nearly every execution, often of one alone. Such a call costs as much as the
    statement has expressions and columns, so it has no more than a holder needs.
    """
    also: LiteralString = f" ending.{answers}," if answers else ""
    epoch: LiteralString = "ending.lease_epoch + 1" if bumps_epoch else "ending.lease_epoch"
    return (
        f""", ending AS (
    SELECT {source}.*, {outcome} AS outcome, {result} AS result,
           {result_encoding} AS result_encoding,
           {failure_reason} AS failure_reason, {failure_category} AS failure_category,
           {failure_detail} AS failure_detail, {cancellation_reason} AS cancellation_reason,
           {cancelled_by} AS cancelled_by, {lease_reason} AS lease_reason
      FROM {source} WHERE {where}
){_ended_set("ending.now_ms")}, attempt_state = 'attempt_terminal',
           attempt_index = ending.attempt_index, attempt_type = ending.attempt_type,
           attempt_started_at_ms = ending.attempt_started_at_ms,
           started_at_ms = coalesce(e.started_at_ms, ending.attempt_started_at_ms),
           total_attempt_count = greatest(e.total_attempt_count, ending.attempt_index + 1),
           lease_reclaim_count = ending.lease_reclaim_count, lease_epoch = {epoch},
           lease_id = ending.lease_id
      FROM ending
     WHERE {execution_row("ending.partition_key", "ending.execution_id")}
       AND e.lifecycle_phase <> 'terminal' AND e.lease_epoch = ending.lease_epoch - 1
 RETURNING ending.ordinal,{also} ending.partition_key, ending.execution_id, ending.attempt_index,
           ending.attempt_type, ending.attempt_started_at_ms, ending.attempt_recorded,
           ending.lease_epoch, ending.lease_id, ending.worker_id, ending.worker_instance_id,
           ending.outcome, ending.result, ending.result_encoding, ending.failure_reason,
           ending.failure_category, ending.failure_detail, ending.lease_reason, e.route_id,
           e.flow_id, e.tags, e.created_at_ms, e.terminal_at_ms AS ended_at_ms
)"""
        + _lease_ended()
        + save_attempt(
            "attempt_closed",
            "ended",
            outcome="outcome",
            with_result=True,
            at="ended_at_ms",
        )
        + ", lease_end_recorded AS ("
        + record_lease_event(
            "lease_ended", event_type="'revoked'", reason="lease_reason", at="ended_at_ms"
        )
        + "), completion_recorded AS ("
        + record_completion_event("ended", wakes=WAKE_COMPLETION_IF_ASKED)
        + ")"
    )


def end_unleased(
    source: LiteralString,
    *,
    outcome: LiteralString,
    cancellation_reason: LiteralString,
    cancelled_by: LiteralString,
) -> LiteralString:
    """As `end`, for executions that have no lease and that this statement has locked.

    `source` has their `partition_key`, `execution_id` and `attempt_state`, and as `place` where the
    execution is in its table, so that it is not searched for again. An execution that is elsewhere
    now is left alone. Nothing is looked up that only a claim can have left, and the rows that are
    copied from one CTE to the next are narrow.

    `flow_id` and `created_at_ms` are assigned what they are: when a page of an index is full,
    Postgres searches it for versions to delete if the statement assigns no column of that index. A
    batch finds none there, because the versions that it replaces are still visible to others.
    """
    return (
        f""", ending AS (
    SELECT {source}.*, false AS leased, {outcome} AS outcome, NULL::text AS failure_reason,
           NULL::text AS failure_category, {cancellation_reason} AS cancellation_reason,
           {cancelled_by} AS cancelled_by
      FROM {source}
){_ended_set("ff.now_ms()")},
           attempt_state = CASE WHEN {_ATTEMPT_ENDED},
           flow_id = e.flow_id, created_at_ms = e.created_at_ms
      FROM ending
     WHERE e.ctid = ending.place AND e.partition_key = ending.partition_key
       AND e.lifecycle_phase <> 'terminal'
 RETURNING ending.partition_key, ending.execution_id, ending.leased, ending.attempt_state,
           ending.outcome, {_ENDED_ROW}
)"""
        + ATTEMPT_AMENDED
        + ", completion_recorded AS ("
        + record_completion_event("ended", wakes=WAKE_COMPLETION)
        + ")"
    )


def _ended_set(now: LiteralString) -> LiteralString:
    """The CTE `ended` up to the columns that only some kinds of ends change."""
    return f""", ended AS (          -- unless it has ended meanwhile
    UPDATE ff.exec_core e
       SET lifecycle_phase = 'terminal', eligibility_state = 'not_applicable',
           blocking_reason = 'none', blocking_detail = NULL, resume_pending = false,
           lease_lost = false, terminal_outcome = ending.outcome, terminal_at_ms = {now},
           last_mutation_at_ms = {now}, delay_until_ms = NULL, not_before_ms = NULL,
           failure_reason = ending.failure_reason, failure_category = ending.failure_category,
           cancellation_reason = ending.cancellation_reason, cancelled_by = ending.cancelled_by"""


def _lease_ended(also: LiteralString = "", *, where: LiteralString = "true") -> LiteralString:
    """The CTE that deletes the leases of the rows of `ended` for which `where` holds."""
    more: LiteralString = f", {also}" if also else ""
    return f""", lease_ended AS (  -- after a renewal in progress, whose event comes before this one
    DELETE FROM ff.lease l USING ended
     WHERE {lease_row("ended.partition_key", "ended.execution_id")}
       AND {where}
 RETURNING ended.partition_key, ended.execution_id, ended.attempt_index, ended.lease_epoch,
           ended.lease_id, ended.route_id, ended.tags, ended.lease_reason,
           ended.worker_instance_id, ended.ended_at_ms{more}
)"""
