"""active → runnable or suspended: the one way a lease is given up while the execution goes on."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.engine.lifecycle.sql.attempt import save_attempt
from flowfabric.engine.lifecycle.sql.by_key import execution_row, lease_row
from flowfabric.engine.lifecycle.sql.events import record_lease_event
from flowfabric.engine.lifecycle.sql.queue import queued, slot_freed
from flowfabric.engine.lifecycle.sql.wake import WAKE_ATTEMPT, WAKE_LEASE, wake_holders, wake_lanes

REQUEUED: Final[LiteralString] = (
    """, requeued AS (       -- claimable now or later; a member of a cancelled flow is parked
    UPDATE ff.exec_core e
       SET lifecycle_phase = CASE WHEN requeuing.suspends AND NOT e.flow_cancelled
                                  THEN 'suspended' ELSE 'runnable' END,
           last_mutation_at_ms = ff.now_ms(),
           eligibility_state = CASE WHEN e.flow_cancelled THEN 'blocked_by_operator'
                                    WHEN requeuing.suspends THEN 'not_applicable'
                                    WHEN requeuing.waiting_for = 'waiting_for_children'
                                    THEN 'blocked_by_dependencies'
                                    WHEN requeuing.until_ms IS NULL THEN 'eligible_now'
                                    ELSE 'not_eligible_until_time' END,
           blocking_reason = CASE WHEN e.flow_cancelled THEN 'paused_by_flow_cancel'
                                  WHEN requeuing.suspends
                                    OR requeuing.waiting_for = 'waiting_for_children'
                                  THEN requeuing.waiting_for
                                  WHEN requeuing.until_ms IS NULL THEN 'waiting_for_worker'
                                  ELSE requeuing.waiting_for END,
           delay_until_ms = CASE WHEN e.flow_cancelled THEN NULL ELSE requeuing.until_ms END,
           blocking_detail = requeuing.waiting_detail,
           resume_pending = false, attempt_state = requeuing.next_attempt_state,
           attempt_index = requeuing.attempt_index
               + (requeuing.counts_as_retry OR requeuing.begins_anew)::integer,
           attempt_type = requeuing.attempt_type,
           attempt_started_at_ms = requeuing.attempt_started_at_ms,
           started_at_ms = coalesce(e.started_at_ms, requeuing.attempt_started_at_ms),
           total_attempt_count = greatest(e.total_attempt_count, requeuing.attempt_index + 1),
           lease_reclaim_count = CASE WHEN requeuing.begins_anew THEN 0
                                      ELSE requeuing.lease_reclaim_count END,
           retry_count = CASE WHEN requeuing.begins_anew THEN 0
                              ELSE e.retry_count + requeuing.counts_as_retry::integer END,
           infra_release_count = coalesce(requeuing.infra_releases, e.infra_release_count),
           lease_epoch = requeuing.lease_epoch + requeuing.bumps_epoch::integer,
           lease_id = requeuing.lease_id, lease_lost = requeuing.counts_as_lost,
           failure_reason = coalesce(requeuing.failure_reason, e.failure_reason),
           failure_category = coalesce(requeuing.failure_category, e.failure_category)
      FROM requeuing
     WHERE """
    + execution_row("requeuing.partition_key", "requeuing.execution_id")
    + """
       AND e.lease_epoch = requeuing.lease_epoch - 1
 RETURNING requeuing.*, e.route_id, e.flow_id, e.tags, e.priority, e.created_at_ms,
           e.eligibility_state, e.deadline_at_ms, e.quota_key_id, e.budget_ids
), lease_given_up AS ( -- after a renewal in progress, whose event comes before that of the end
    DELETE FROM ff.lease l USING requeued
     WHERE """
    + lease_row("requeued.partition_key", "requeued.execution_id")
    + """
 RETURNING requeued.*
)"""
    + queued("requeued")
    + save_attempt("attempt_saved", "requeued", outcome="attempt_outcome")
    + """, requeue_recorded AS ("""
)
"""Followed by the INSERT of the lease events."""

WAKES: Final[LiteralString] = (
    WAKE_LEASE
    + ", "
    + WAKE_ATTEMPT
    + ", "
    + wake_lanes("requeued", where="eligibility_state = 'eligible_now'")
)


def requeue(
    source: LiteralString,
    *,
    where: LiteralString = "true",
    until_ms: LiteralString = "NULL::bigint",
    waiting_for: LiteralString = "'waiting_for_worker'",
    detail: LiteralString = "NULL::text",
    suspends: LiteralString = "false",
    attempt_outcome: LiteralString,
    next_attempt_state: LiteralString = "'attempt_interrupted'",
    counts_as_retry: LiteralString = "false",
    counts_as_lost: LiteralString = "false",
    begins_anew: LiteralString = "false",
    infra_releases: LiteralString = "NULL::integer",
    bumps_epoch: LiteralString = "true",
    failure_reason: LiteralString = "NULL::text",
    failure_category: LiteralString = "NULL::text",
    failure_detail: LiteralString = "NULL::text",
    lease_event: LiteralString = "'revoked'",
    lease_reason: LiteralString = "NULL::text",
    by_holder: bool = False,
) -> LiteralString:
    """The CTEs that requeue those rows of `source` for which `where` holds; `requeued` are these.

    `source` has the columns of `fence.holding` or `fence.LOCKED_COLUMNS`, and the rows are leased.
    A row whose lease ended before this statement came to lock it is left alone.
    Afterwards the execution waits for `waiting_for` until `until_ms`, or is claimable where that is
    null, or is suspended where `suspends`; `detail` says more in words. Its attempt is in the
    ledger, and one lease event is written. `counts_as_retry` begins the next attempt; `begins_anew`
    does so too, without counted retries and lost leases. `counts_as_lost` adds to the lost leases
    with the next claim, and `infra_releases`, if not null, is the new count of releases because of
    trouble with the database. A holder
    that gives up its own lease may keep the epoch, so that its repeated call is recognised. Unless
    the lease is given up `by_holder`, the workers that held the leases are woken, to stop the
    handlers.
    """
    return (
        f""", requeuing AS (
    SELECT {source}.*, {until_ms} AS until_ms, {waiting_for} AS waiting_for,
           {detail} AS waiting_detail, {suspends} AS suspends,
           {attempt_outcome} AS attempt_outcome, {next_attempt_state} AS next_attempt_state,
           {counts_as_retry} AS counts_as_retry, {counts_as_lost} AS counts_as_lost,
           {begins_anew} AS begins_anew, {infra_releases} AS infra_releases,
           {bumps_epoch} AS bumps_epoch, {failure_reason} AS failure_reason,
           {failure_category} AS failure_category, {failure_detail} AS failure_detail,
           {lease_event} AS lease_event, {lease_reason} AS lease_reason
      FROM {source} WHERE {where}
)"""
        + REQUEUED
        + record_lease_event(
            "lease_given_up",
            event_type="lease_event",
            reason="lease_reason",
            wakes=WAKES if by_holder else WAKES + ", " + wake_holders("requeued"),
        )
        + ")"
        + ("" if by_holder else slot_freed("lease_given_up"))
    )
