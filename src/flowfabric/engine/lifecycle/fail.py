"""active → runnable or terminal(failed): an attempt failed, and the policy says what follows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.end import RUNG, TERMINALIZE
from flowfabric.engine.lifecycle.sql.fence import SEEN, Sighting, verdicts
from flowfabric.engine.lifecycle.sql.requeue import CALLED, RELINQUISH
from flowfabric.errors import Refusal
from flowfabric.ids import ExecutionId, clean_text
from flowfabric.instants import instant
from flowfabric.policy import milliseconds
from flowfabric.states import AttemptState, FailureClass, LifecyclePhase, TerminalOutcome

FAIL: Final[LiteralString] = (
    """
-- lifecycle.fail
WITH held AS (        -- what the callers believe they hold, and why they fail
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
                         %(attempt_index)s::integer[], %(lease_epoch)s::bigint[],
                         %(lease_id)s::uuid[], %(failure_reason)s::text[],
                         %(failure_category)s::text[], %(failure_class)s::text[],
                         %(failure_detail)s::text[], %(retry_after_ms)s::bigint[])
              WITH ORDINALITY
        AS held (held_partition, held_execution, held_attempt, held_epoch, held_lease,
                 failure_reason, failure_category, failure_class, failure_detail,
                 retry_after_ms, ordinal)
), """
    + SEEN
    + """, failed AS (       -- each with what its policy says
    SELECT seen.*, false AS rotates, 'revoked' AS lease_event,
           coalesce(seen.retry_after_ms,
                    ff.retry_delay_ms(body.policy, seen.retry_count, seen.execution_id)) AS wait_ms,
           ff.retry_allowed(body.policy, seen.retry_count, seen.failure_class,
                            seen.failure_category) AS retries
      FROM seen JOIN ff.exec_body body USING (partition_key, execution_id) WHERE seen.holds
), ending AS (
    SELECT failed.*, 'failed' AS outcome, NULL::bytea AS result, NULL::text AS cancellation_reason,
           NULL::text AS cancelled_by, 'failed' AS lease_reason
      FROM failed WHERE NOT retries
), leaving AS (
    SELECT failed.*, 'retry' AS attempt_outcome, 'pending_retry_attempt' AS next_attempt_state,
           'waiting_for_retry_backoff' AS waiting_for, false AS loses, 'retry' AS lease_reason,
           CASE WHEN wait_ms > 0 THEN ff.now_ms() + wait_ms END AS until_ms
      FROM failed WHERE retries
), """
    + TERMINALIZE
    + """, """
    + RELINQUISH
    + """
SELECT ordinal, lifecycle_phase, terminal_outcome, attempt_state, attempt_index, lease_epoch,
       lease_id, delay_until_ms, 'ended' AS decided, NULL::bigint AS until_ms
  FROM ended WHERE """
    + RUNG
    + """
 UNION ALL
SELECT ordinal, lifecycle_phase, terminal_outcome, attempt_state, attempt_index, lease_epoch,
       lease_id, delay_until_ms, 'retried', until_ms
  FROM left_over WHERE """
    + CALLED
    + """
 UNION ALL
SELECT held.ordinal, seen.lifecycle_phase, seen.terminal_outcome, seen.attempt_state,
       seen.attempt_index, seen.lease_epoch, seen.lease_id, seen.delay_until_ms, NULL, NULL
  FROM held LEFT JOIN seen USING (ordinal)
 WHERE held.ordinal NOT IN (SELECT ordinal FROM failed)
"""
)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why the holder of `lease` gives up this attempt.

    The class decides whether another attempt is possible; unless given, the category names it.
    """

    lease: Lease
    reason: str
    category: str = FailureClass.TRANSIENT.value
    failure_class: FailureClass | None = None
    detail: str | None = None
    retry_after: float | timedelta | None = None
    """Wait this long instead of the backoff of the policy."""

    def __post_init__(self) -> None:
        if self.retry_after is not None:
            milliseconds(self.retry_after, field="retry_after")


class RetryScheduled(msgspec.Struct, frozen=True, kw_only=True):
    """Another attempt follows, not before `delay_until` (None: at once)."""

    execution_id: ExecutionId
    delay_until: datetime | None
    next_attempt_index: int
    repeated: bool = False


class TerminalFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The execution has failed for good."""

    execution_id: ExecutionId
    repeated: bool = False


class _Row(Sighting, frozen=True):
    decided: str | None
    until_ms: int | None


async def fail(
    conn: Connection, failures: Sequence[Failure]
) -> list[RetryScheduled | TerminalFailed | Refusal]:
    """Fail every attempt whose lease is still held, in the order given.

    The stored policy decides: another attempt after its backoff, or the end. A call repeated by
    the same holder after a lost answer gets the first answer again. Texts are cleaned, not refused.
    """
    rows = await fetch_all(
        conn,
        FAIL,
        _Row,
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
    decided = {row.ordinal: row for row in rows if row.decided is not None}
    told = {failures[number - 1].lease: row for number, row in decided.items()}
    return verdicts(
        [failure.lease for failure in failures],
        [row for row in rows if row.ordinal not in decided],
        done=lambda lease: _done(lease, told[lease]),
        done_before=_done_before,
    )


def _done(lease: Lease, row: _Row) -> RetryScheduled | TerminalFailed:
    if row.decided == "ended":
        return TerminalFailed(execution_id=lease.execution_id)
    return RetryScheduled(
        execution_id=lease.execution_id,
        delay_until=instant(row.until_ms),
        next_attempt_index=lease.attempt_index + 1,
    )


def _done_before(lease: Lease, seen: Sighting) -> RetryScheduled | TerminalFailed | None:
    if seen.terminal_outcome == TerminalOutcome.FAILED and seen.was_left_by(lease):
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
