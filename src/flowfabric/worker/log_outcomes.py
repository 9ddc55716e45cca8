"""The log record of an attempt that did not succeed, written when its outcome is recorded."""

from __future__ import annotations

import logging

from flowfabric.engine.lifecycle.attempt_log import AttemptRecord, log, log_attempt
from flowfabric.engine.lifecycle.fail import Failure, RetryScheduled, TerminalFailed
from flowfabric.engine.lifecycle.release_after_trouble import ReleasedAfterTrouble, Trouble
from flowfabric.worker.running_attempt import RunningAttempt, was_cancelled


def log_outcome(attempt: RunningAttempt, outcome: Failure | Trouble, answer: object) -> None:
    """Log the failure, and what the engine decided: a retry, or the end of the execution.

    A record of the end has the traceback; at level DEBUG a record of a retry has it too.
    """
    match outcome, answer:
        case Failure(), RetryScheduled():
            _log_retry(attempt, outcome, answer)
        case Failure(), TerminalFailed():
            _log_end(attempt, outcome, answer)
        case Trouble(), ReleasedAfterTrouble():
            record = _record(attempt, "attempt_released")
            record.error, record.next_try_at = outcome.reason, answer.delay_until
            log_attempt(
                logging.WARNING,
                "%s was released because of database trouble%s; it starts again %s",
                record.attempt,
                record.why,
                record.next_try,
                record=record,
            )
        case Trouble(), TerminalFailed():
            record = _record(attempt, "attempt_failed")
            record.error, record.category = outcome.reason, "infra_crash"
            log_attempt(
                logging.ERROR,
                "%s failed%s; it was released too often because of database trouble",
                record.attempt,
                record.why,
                record=record,
            )
        case _:
            return


def log_lease_lost(attempt: RunningAttempt, reason: Exception) -> None:
    """Log that the lease of an attempt whose handler may still run is lost, and why."""
    record = _record(attempt, "lease_lost")
    record.error_type, record.error = type(reason).__name__, str(reason)
    if was_cancelled(reason):
        record.event = "attempt_cancelled"
        log_attempt(logging.INFO, "%s was cancelled while it ran", record.attempt, record=record)
        return
    log_attempt(
        logging.WARNING,
        "%s lost the lease%s; its outcome is not recorded",
        record.attempt,
        record.why,
        record=record,
    )


def log_not_recorded(attempt: RunningAttempt, refusal: Exception) -> None:
    """Log that the outcome of an attempt was refused."""
    record = _record(attempt, "outcome_refused")
    record.error_type, record.error = type(refusal).__name__, str(refusal)
    log_attempt(
        logging.INFO if was_cancelled(refusal) else logging.WARNING,
        "the outcome of %s was not recorded%s",
        record.attempt,
        record.why,
        record=record,
    )


def _log_retry(attempt: RunningAttempt, failure: Failure, answer: RetryScheduled) -> None:
    record = _of_failure(attempt, failure, answer.max_attempts)
    record.event, record.next_try_at = "attempt_retried", answer.delay_until
    debugging = log.isEnabledFor(logging.DEBUG)
    log_attempt(
        # A handler that raises RetryLater has not failed, as far as it is concerned.
        logging.INFO if failure.category == "retry" else logging.WARNING,
        "%s failed%s; next try %s",
        record.attempt,
        record.why,
        record.next_try,
        record=record,
        error=attempt.error if debugging and failure.detail else None,
        traceback=failure.detail if debugging else None,
    )


def _log_end(attempt: RunningAttempt, failure: Failure, answer: TerminalFailed) -> None:
    record = _of_failure(attempt, failure, answer.max_attempts)
    was_last = record.max_attempts is None or record.attempt_index + 1 >= record.max_attempts
    log_attempt(
        logging.ERROR,
        "%s failed%s; %s",
        record.attempt,
        record.why,
        "no retry is left" if was_last else "such a failure is not retried",
        record=record,
        error=None if failure.detail is None else attempt.error,  # none for a plain `Fail`
        traceback=failure.detail,
    )


def _of_failure(
    attempt: RunningAttempt, failure: Failure, max_attempts: int | None
) -> AttemptRecord:
    record = _record(attempt, "attempt_failed")
    record.max_attempts = max_attempts
    record.error_type, record.error = failure.error_type, failure.reason
    record.category = failure.category
    return record


def _record(attempt: RunningAttempt, event: str) -> AttemptRecord:
    return AttemptRecord(
        event=event,
        execution_id=attempt.execution_id,
        kind=attempt.claimed.execution_kind,
        attempt_index=attempt.lease.attempt_index,
        flow_id=attempt.claimed.flow_id,
    )
