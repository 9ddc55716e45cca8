"""active → runnable: the one way a lease is given up while the execution goes on."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.engine.lifecycle.sql.attempt import save_attempt
from flowfabric.engine.lifecycle.sql.events import record_lease_event
from flowfabric.engine.lifecycle.sql.wake import WAKE_LEASE, wake_holders, wake_lanes

REQUEUED: Final[LiteralString] = (
    """, requeued AS (       -- claimable now or later; a member of a cancelled flow is parked
    UPDATE ff.exec_core e
       SET lifecycle_phase = 'runnable', last_mutation_at_ms = ff.now_ms(),
           eligibility_state = CASE WHEN e.flow_cancelled THEN 'blocked_by_operator'
                                    WHEN requeuing.waiting_for = 'waiting_for_children'
                                    THEN 'blocked_by_dependencies'
                                    WHEN requeuing.until_ms IS NULL THEN 'eligible_now'
                                    ELSE 'not_eligible_until_time' END,
           blocking_reason = CASE WHEN e.flow_cancelled THEN 'paused_by_flow_cancel'
                                  WHEN requeuing.waiting_for = 'waiting_for_children'
                                  THEN requeuing.waiting_for
                                  WHEN requeuing.until_ms IS NULL THEN 'waiting_for_worker'
                                  ELSE requeuing.waiting_for END,
           delay_until_ms = CASE WHEN e.flow_cancelled THEN NULL ELSE requeuing.until_ms END,
           attempt_state = requeuing.next_attempt_state,
           attempt_index = e.attempt_index + requeuing.counts_as_retry::integer,
           retry_count = e.retry_count + requeuing.counts_as_retry::integer,
           infra_release_count = requeuing.infra_releases,
           lease_epoch = e.lease_epoch + requeuing.bumps_epoch::integer,
           lease_lost = requeuing.counts_as_lost,
           lease_expires_at_ms = NULL, worker_id = NULL, worker_instance_id = NULL,
           attempt_timeout_at_ms = NULL,
           failure_reason = coalesce(requeuing.failure_reason, e.failure_reason),
           failure_category = coalesce(requeuing.failure_category, e.failure_category)
      FROM requeuing
     WHERE (e.partition_key, e.execution_id) = (requeuing.partition_key, requeuing.execution_id)
 RETURNING requeuing.*
), attempt_saved AS (      -- the attempt, as far as it came"""
    + save_attempt("requeued", outcome="attempt_outcome")
    + """), requeue_recorded AS ("""
)
"""Followed by the INSERT of the lease events."""

WAKES: Final[LiteralString] = (
    WAKE_LEASE
    + ", "
    + wake_lanes("requeued", where="until_ms IS NULL AND waiting_for <> 'waiting_for_children'")
)


def requeue(
    source: LiteralString,
    *,
    where: LiteralString = "true",
    until_ms: LiteralString = "NULL::bigint",
    waiting_for: LiteralString = "'waiting_for_worker'",
    attempt_outcome: LiteralString,
    next_attempt_state: LiteralString = "'attempt_interrupted'",
    counts_as_retry: LiteralString = "false",
    counts_as_lost: LiteralString = "false",
    infra_releases: LiteralString = "infra_release_count",
    bumps_epoch: LiteralString = "true",
    failure_reason: LiteralString = "NULL::text",
    failure_category: LiteralString = "NULL::text",
    failure_detail: LiteralString = "NULL::text",
    lease_event: LiteralString = "'revoked'",
    lease_reason: LiteralString = "NULL::text",
    by_holder: bool = False,
) -> LiteralString:
    """The CTEs that requeue those rows of `source` for which `where` holds; `requeued` are these.

    `source` has the columns of `fence.LOCKED_COLUMNS`, and the rows are locked and leased.
    Afterwards the execution waits for `waiting_for` until `until_ms`, or is claimable where that is
    null; its attempt is in the ledger, and one lease event is written. `counts_as_retry` begins the
    next attempt, `counts_as_lost` adds to the lost leases with the next claim, and
    `infra_releases` is the new count of releases because of trouble with the database. A holder
    that gives up its own lease may keep the epoch, so that its repeated call is recognised. Unless
    the lease is given up `by_holder`, the workers that held the leases are woken, to stop the
    handlers.
    """
    return (
        f""", requeuing AS (
    SELECT {source}.*, {until_ms} AS until_ms, {waiting_for} AS waiting_for,
           {attempt_outcome} AS attempt_outcome, {next_attempt_state} AS next_attempt_state,
           {counts_as_retry} AS counts_as_retry, {counts_as_lost} AS counts_as_lost,
           {infra_releases} AS infra_releases,
           {bumps_epoch} AS bumps_epoch, {failure_reason} AS failure_reason,
           {failure_category} AS failure_category, {failure_detail} AS failure_detail,
           {lease_event} AS lease_event, {lease_reason} AS lease_reason
      FROM {source} WHERE {where}
)"""
        + REQUEUED
        + record_lease_event(
            "requeued",
            event_type="lease_event",
            reason="lease_reason",
            wakes=WAKES if by_holder else WAKES + ", " + wake_holders("requeued"),
        )
        + ")"
    )
