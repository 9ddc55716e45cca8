"""active → runnable or terminal(failed): an attempt failed; its policy decides about a retry."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.db.notifier import notifies
from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.end import end_held
from flowfabric.engine.lifecycle.sql.fence import (
    SeenExecution,
    answers,
    held_leases,
    holding,
    locked_if_mixed,
)
from flowfabric.engine.lifecycle.sql.requeue import requeue
from flowfabric.errors import Refusal
from flowfabric.ids import ExecutionId, check_is_text, clean_text
from flowfabric.instants import instant
from flowfabric.policy import milliseconds
from flowfabric.states import AttemptState, FailureClass, LifecyclePhase, TerminalOutcome

FAIL: Final[LiteralString] = (
    """
-- lifecycle.fail
"""
    + held_leases(
        arrays="""%(failure_reason)s::text[], %(failure_category)s::text[],
                         %(failure_class)s::text[], %(failure_detail)s::text[],
                         %(retry_after_ms)s::bigint[]""",
        names="reason, category, class, detail, retry_after_ms",
    )
    + holding("reason, category, class, detail, retry_after_ms")
    + """, evaluated AS (      -- each lease once, with what its policy says of its first failure
    SELECT DISTINCT ON (holding.partition_key, holding.execution_id) holding.*,
           coalesce(holding.retry_after_ms,
                    ff.retry_delay_ms(e.policy, e.retry_count, holding.execution_id)) AS wait_ms,
           ff.retry_allowed(e.policy, e.retry_count, holding.class, holding.category)
               AS retry_allowed,
           holding.attempt_index + 1 - e.retry_count + ff.max_retries(e.policy) AS max_attempts
      FROM holding
     CROSS JOIN LATERAL (  -- by key, also if the plan is made while the tables are empty
           SELECT c.retry_count, b.policy
             FROM ff.exec_core c JOIN ff.exec_body b USING (partition_key, execution_id)
            WHERE (c.partition_key, c.execution_id) = (holding.partition_key, holding.execution_id)
           OFFSET 0) AS e
     ORDER BY holding.partition_key, holding.execution_id, holding.ordinal
)"""
    + locked_if_mixed("evaluated", "failed", ends="NOT retry_allowed")
    + end_held(
        "failed",
        where="NOT retry_allowed",
        outcome="'failed'",
        failure_reason="reason",
        failure_category="category",
        failure_detail="detail",
        lease_reason="'failed'",
        answers="max_attempts",
    )
    + requeue(
        "failed",
        where="retry_allowed",
        until_ms="CASE WHEN wait_ms > 0 THEN ff.now_ms() + wait_ms END",
        waiting_for="'waiting_for_retry_backoff'",
        attempt_outcome="'retry'",
        next_attempt_state="'pending_retry_attempt'",
        counts_as_retry="true",
        infra_releases="0",
        bumps_epoch="false",
        failure_reason="reason",
        failure_category="category",
        failure_detail="detail",
        lease_reason="'retry'",
        by_holder=True,
    )
    + """
SELECT ordinal, true AS has_ended, NULL::bigint AS until_ms, max_attempts FROM ended
 UNION ALL
SELECT ordinal, false, until_ms, max_attempts FROM requeued
"""
)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why the attempt under `lease` failed.

    The class decides whether a retry is possible; by default it follows from the category.
    """

    lease: Lease
    reason: str
    category: str = FailureClass.TRANSIENT.value
    failure_class: FailureClass | None = None
    detail: str | None = None
    retry_after: float | timedelta | None = None
    """Wait this long instead of the backoff of the policy."""
    error_type: str | None = None
    """The type of the exception, for the log of the worker; it is not stored."""

    def __post_init__(self) -> None:
        check_is_text(self.reason, field="reason")
        check_is_text(self.category, field="category")
        if self.detail is not None:
            check_is_text(self.detail, field="detail")
        if self.retry_after is not None:
            milliseconds(self.retry_after, field="retry_after")


class RetryScheduled(msgspec.Struct, frozen=True, kw_only=True):
    """Another attempt follows, not before `delay_until` (None: at once)."""

    execution_id: ExecutionId
    delay_until: datetime | None
    next_attempt_index: int
    max_attempts: int | None = None
    """How many attempts there are if each of them fails; None in a repeated answer."""
    repeated: bool = False


class TerminalFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The execution has failed and is terminal."""

    execution_id: ExecutionId
    max_attempts: int | None = None
    """How many attempts its policy allowed; None in a repeated answer, and where none failed."""
    repeated: bool = False


class _Row(msgspec.Struct, frozen=True):
    ordinal: int
    has_ended: bool
    until_ms: int | None
    max_attempts: int


async def fail(
    conn: Connection, failures: Sequence[Failure]
) -> list[RetryScheduled | TerminalFailed | Refusal]:
    """Fail every attempt whose lease is still held, in the order given.

    The stored policy decides: another attempt after its backoff, or the end. A call that the same
    holder repeats after a lost answer gets the first answer again. Texts that cannot be stored are
    cleaned, not refused.
    """
    rows = await fetch_all(
        conn,
        FAIL,
        _Row,
        notifies=notifies("completion"),
        failure_reason=[clean_text(failure.reason) for failure in failures],
        failure_category=[clean_text(failure.category, at_most=256) for failure in failures],
        failure_class=[
            (failure.failure_class or FailureClass.of(failure.category)).value
            for failure in failures
        ],
        failure_detail=[
            None if failure.detail is None else clean_text(failure.detail) for failure in failures
        ],
        retry_after_ms=[
            None if failure.retry_after is None else milliseconds(failure.retry_after)
            for failure in failures
        ],
        **fence_columns([failure.lease for failure in failures]),
    )
    decisions = {failures[row.ordinal - 1].lease: row for row in rows}
    return await answers(
        conn,
        [failure.lease for failure in failures],
        [row.ordinal for row in rows],
        done=lambda lease: _done(lease, decisions[lease]),
        done_before=_done_before,
    )


def _done(lease: Lease, row: _Row) -> RetryScheduled | TerminalFailed:
    if row.has_ended:
        return TerminalFailed(execution_id=lease.execution_id, max_attempts=row.max_attempts)
    return RetryScheduled(
        execution_id=lease.execution_id,
        delay_until=instant(row.until_ms),
        next_attempt_index=lease.attempt_index + 1,
        max_attempts=row.max_attempts,
    )


def _done_before(lease: Lease, seen: SeenExecution) -> RetryScheduled | TerminalFailed | None:
    if seen.terminal_outcome == TerminalOutcome.FAILED and seen.was_ended_by(lease):
        return TerminalFailed(execution_id=lease.execution_id, repeated=True)
    same_lease = (seen.lease_epoch, seen.lease_id) == (lease.lease_epoch, lease.lease_id)
    if (
        same_lease
        and seen.lifecycle_phase == LifecyclePhase.RUNNABLE
        and seen.attempt_state == AttemptState.PENDING_RETRY_ATTEMPT
        and seen.attempt_index == lease.attempt_index + 1
    ):
        return RetryScheduled(
            execution_id=lease.execution_id,
            delay_until=instant(seen.delay_until_ms),
            next_attempt_index=seen.attempt_index,
            repeated=True,
        )
    return None
