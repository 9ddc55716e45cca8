"""Every error: its wire code, category, HTTP status and whether a retry can help."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

import flowfabric
from flowfabric import errors
from flowfabric.db.faults import LockTimeout, SerializationConflict
from flowfabric.errors import FlowFabricError, RetryClass, ValidationError, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.worker.handler import Reported
from tests.all_cases import all_cases

ID = ExecutionId(7, UUID(int=1))
AT = datetime(2026, 1, 2, tzinfo=UTC)
ENDED: dict[str, Any] = {
    "lifecycle_phase": "terminal",
    "terminal_outcome": "success",
    "lease_epoch": 3,
    "attempt_id": UUID(int=2),
}

# An instance of each, with what executions.md section 12 (and its G-39) says of it.
RAISED: list[tuple[FlowFabricError, str, str, int, bool]] = [
    (errors.ConfigError("database", "dsn", "is missing"), "config", "config", 500, False),
    (errors.ApiError.of({"detail": "no"}), "api", "api", 500, False),
    (errors.TransportError("gone"), "transport", "transport", 500, True),
    (errors.NotFound("execution", ID), "not_found", "execution_not_found", 404, False),
    (errors.NotFound("attempt", 3), "not_found", "attempt_not_found", 404, False),
    (errors.ExecutionNotActive(ID, **ENDED), "contention", "execution_not_active", 409, False),
    (errors.ExecutionNotEligible(ID, "active"), "contention", "execution_not_eligible", 409, True),
    (errors.ExecutionNotLeaseable(ID, "why"), "contention", "execution_not_leaseable", 409, True),
    (errors.LeaseConflict(ID), "contention", "lease_conflict", 409, True),
    (errors.UseClaimResumed(ID), "contention", "use_claim_resumed_execution", 409, True),
    (errors.NotAResumedExecution(ID), "contention", "not_a_resumed_execution", 409, True),
    (errors.InvalidClaimGrant(ID, "w"), "contention", "invalid_claim_grant", 409, True),
    (errors.ClaimGrantExpired(ID), "contention", "claim_grant_expired", 409, True),
    (errors.ActiveAttemptExists(ID), "conflict", "active_attempt_exists", 409, False),
    (errors.UniqueKeyTaken("k", execution_id=ID), "conflict", "unique_key_taken", 409, False),
    (
        errors.IdempotencyConflict("k", execution_id=ID, differs=["payload"]),
        "conflict",
        "idempotency_conflict",
        409,
        False,
    ),
    (errors.RotationConflict("k1", "is retired"), "conflict", "rotation_conflict", 409, False),
    (errors.ExecutionNotTerminal(ID, "active"), "state", "execution_not_terminal", 409, False),
    (errors.MaxReplaysExhausted(ID, 10), "state", "max_replays_exhausted", 409, False),
    (errors.GrantAlreadyExists(ID), "state", "grant_already_exists", 409, False),
    (errors.LaneNotAccepting("x", "draining"), "state", "lane_not_accepting", 409, False),
    (errors.StreamDisconnected(b""), "stream_disconnected", "stream_disconnected", 503, False),
    (errors.FlowAlreadyTerminal(ID.uuid), "state", "flow_already_terminal", 409, False),
    (errors.ExecutionNotInFlow(ID, ID.uuid), "state", "execution_not_in_flow", 409, False),
    (errors.DepsNotSatisfied(ID), "state", "deps_not_satisfied", 409, False),
    (errors.NotBlockedByDeps(ID, "active"), "state", "not_blocked_by_deps", 409, False),
    (errors.ExecutionNotRunnable(ID, "active"), "state", "not_runnable", 409, False),
    (errors.ExecutionTerminal(ID, "completed"), "state", "terminal", 409, False),
    (
        errors.ExecutionAlreadyInFlow(ID, ID.uuid),
        "conflict",
        "execution_already_in_flow",
        409,
        False,
    ),
    (errors.FlowAlreadyStarted("a", ID.uuid), "state", "flow_already_started", 409, False),
    (errors.SelfReferencingEdge(ID), "conflict", "self_referencing_edge", 409, False),
    (errors.CycleDetected(ID.uuid, ID), "conflict", "cycle_detected", 409, False),
    (
        errors.DependencyAlreadyExists("edge", ID.uuid),
        "conflict",
        "dependency_already_exists",
        409,
        False,
    ),
    (
        errors.StaleView("execution", ID, seen_at=AT, changed_at=AT),
        "contention",
        "stale_view",
        412,
        False,
    ),
    (
        errors.StaleGraphRevision(ID.uuid, expected=1, current=2),
        "contention",
        "stale_graph_revision",
        409,
        True,
    ),
    *(
        (errors.InvalidGrant(code, "x"), "validation", code, 400, False)
        for code in sorted(errors.InvalidGrant.CODES)
    ),
    (errors.RetryExhausted("cancel", 3), "contention", "retry_exhausted", 503, True),
    (
        errors.BudgetExceeded("agent", dimension="tokens", current_usage=9, hard_limit=10),
        "state",
        "budget_exceeded",
        409,
        False,
    ),
    (errors.StaleLease(ID, held=1, current=2), "state", "stale_lease", 409, False),
    (errors.LeaseExpired(ID, lease_epoch=1), "state", "lease_expired", 409, False),
    (errors.StreamClosed(ID, 0, phase="terminal"), "state", "stream_closed", 409, False),
    (
        errors.StaleOwnerCannotAppend(ID, 0, why="superseded"),
        "state",
        "stale_owner_cannot_append",
        409,
        False,
    ),
    (
        errors.ScheduleAlreadyExists("a", differs=["cron"]),
        "conflict",
        "schedule_already_exists",
        409,
        False,
    ),
    (
        errors.ScheduleChanged("a", expected=1, current=2),
        "conflict",
        "schedule_changed",
        409,
        False,
    ),
    (errors.ScheduleFinished("a"), "conflict", "schedule_finished", 409, False),
    (errors.TaskConsumed("twice"), "state", "attempt_already_terminal", 409, False),
    (errors.Unavailable("boot", "no schema"), "unavailable", "unavailable", 503, False),
    (errors.PermissionDenied("claim", "no"), "unavailable", "permission_denied", 403, False),
    (errors.NeedsDatabase("submit", "conn="), "unavailable", "needs_database", 503, False),
    (
        errors.ResourceExhausted("disk", "full"),
        "resource_exhausted",
        "resource_exhausted",
        429,
        True,
    ),
    (errors.OperationTimeout("claim", 5), "timeout", "timeout", 504, False),
    (errors.InternalError("bug"), "bug", "internal", 500, False),
    (errors.ExecutionFailed(ID, "why", "net"), "outcome", "execution_failed", 500, False),
    (errors.ExecutionCancelled(ID, "why", "me"), "outcome", "execution_cancelled", 500, False),
    (errors.ExecutionExpired(ID, "late"), "outcome", "execution_expired", 500, False),
    (errors.ExecutionSkipped(ID), "outcome", "execution_skipped", 500, False),
    (errors.ChildFailed(ID, "net", "why"), "outcome", "child_failed", 500, False),
    (errors.FlowFailed(ID.uuid, ["a failed"]), "outcome", "flow_failed", 500, False),
    (errors.FlowCancelPending(ID.uuid, 1.0, 2), "timeout", "timeout", 504, False),
    (errors.FlowCancelled(ID.uuid, "why"), "outcome", "flow_cancelled", 500, False),
    (
        errors.ResultDecodeError("kind", path="$", wanted="int", why="got str", stored=b"x"),
        "outcome",
        "result_decode",
        500,
        False,
    ),
    (errors.ResultTimeout(ID, 5), "timeout", "result_timeout", 500, True),
    (errors.LeaseLost("gone"), "lease_lost", "lease_lost", 500, False),
    (
        errors.NonDeterministicReplay(ID, recorded=["a"], asked=["b"]),
        "handler",
        "non_deterministic_replay",
        500,
        False,
    ),
    (errors.EntryDecodeError("a", "int", "got str"), "handler", "entry_decode", 500, False),
    (errors.StepFailed("a", "net", "why", "OSError"), "handler", "step_failed", 500, False),
    (errors.StepNeedsKey("a"), "handler", "step_needs_key", 500, False),
    (errors.NestedDurableCall("a", "b"), "handler", "nested_durable_call", 500, False),
    (errors.WrongThread(), "handler", "wrong_thread", 500, False),
    (errors.JournalFull(10_001, 5), "handler", "journal_full", 500, False),
    (errors.TransactionOpen(), "handler", "transaction_open", 500, False),
    (errors.SignalTimeout("a"), "handler", "signal_timeout", 500, False),
    (
        errors.SignalPayloadInvalid("a", "int", "got str"),
        "handler",
        "signal_payload_invalid",
        500,
        False,
    ),
    (errors.InvalidToken(), "validation", "invalid_token", 400, False),
    (errors.MissingToken(), "validation", "missing_token", 400, False),
    (errors.TokenExpired(), "validation", "token_expired", 400, False),
    (errors.AlreadySuspended(ID), "state", "already_suspended", 409, False),
    (errors.AlreadySatisfied(ID), "state", "already_satisfied", 409, False),
    (errors.ExecutionNotSuspended(ID, "active"), "state", "execution_not_suspended", 409, False),
    (errors.TargetNotSignalable(ID, "failed"), "state", "target_not_signalable", 409, False),
    (errors.WaitpointNotFound(ID.uuid), "contention", "waitpoint_not_found", 409, True),
    (errors.WaitpointAlreadyExists(ID.uuid), "conflict", "waitpoint_already_exists", 409, False),
    (errors.WaitpointNotPending(ID.uuid, "closed"), "state", "waitpoint_not_pending", 409, False),
    (errors.PendingWaitpointExpired(ID.uuid), "state", "pending_waitpoint_expired", 409, False),
    (errors.WaitpointClosed(ID.uuid), "state", "waitpoint_closed", 409, False),
    (errors.Fail("declined"), "handler", "fail", 500, False),
    (errors.RetryLater("later"), "handler", "retry", 500, False),
    (SerializationConflict("40001"), "transport", "serialization_conflict", 500, False),
    *(
        (ValidationError(code, "why"), "validation", code, 400, False)
        for code in sorted(
            ValidationError.CODES - {"invalid_token", "missing_token", "token_expired"}
        )
    ),
]

# One carries a failure between two of our processes, one says which lock a dispatch passes over;
# nobody outside sees them.
INTERNAL = {Reported, LockTimeout}

# Categories: what is raised is always one of their subclasses.
CATEGORIES = {
    errors.EngineError: ("internal", 500, RetryClass.TERMINAL),
    errors.Contention: ("contention", 409, RetryClass.RETRYABLE),
    errors.Conflict: ("conflict", 409, RetryClass.TERMINAL),
    errors.StateError: ("state", 409, RetryClass.TERMINAL),
    errors.OutcomeError: ("outcome", 500, RetryClass.TERMINAL),
}


def all_errors(root: type[FlowFabricError] = FlowFabricError) -> Iterator[type[FlowFabricError]]:
    for child in root.__subclasses__():
        yield child
        yield from all_errors(child)


@all_cases(("error", "kind", "code", "status", "retryable"), RAISED, ids=[row[2] for row in RAISED])
def test_an_error_carries_its_code_status_and_retry_class(
    error: FlowFabricError, kind: str, code: str, status: int, retryable: bool
) -> None:
    assert (error.kind, error.code, error.http_status) == (kind, code, status)
    assert error.retryable is retryable


def test_every_error_of_the_package_is_listed_here() -> None:
    for module in pkgutil.walk_packages(flowfabric.__path__, "flowfabric."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    ours = {each for each in all_errors() if each.__module__.startswith("flowfabric.")}
    assert ours == {type(row[0]) for row in RAISED} | set(CATEGORIES) | INTERNAL


def test_a_code_names_one_obstacle() -> None:
    # The timeout of cancel_flow is a timeout that also says how many members are left.
    codes = [row[2] for row in RAISED if not isinstance(row[0], errors.FlowCancelPending)]

    assert len(set(codes)) == len(codes)


@all_cases("category", CATEGORIES)
def test_a_category_gives_its_children_kind_status_and_class(
    category: type[FlowFabricError],
) -> None:
    kind, status, retry_class = CATEGORIES[category]

    assert (category.kind, category.http_status, category.retry_class) == (
        kind,
        status,
        retry_class,
    )
    assert category.__subclasses__() or category is errors.Conflict


def test_what_is_merely_done_already_is_informational_and_only_the_unforeseen_a_bug() -> None:
    by_class = {
        retry_class: {type(row[0]) for row in RAISED if row[0].retry_class is retry_class}
        for retry_class in RetryClass
    }

    assert by_class[RetryClass.INFORMATIONAL] == {errors.GrantAlreadyExists, errors.TaskConsumed}
    assert by_class[RetryClass.BUG] == {errors.InternalError}
    assert by_class[RetryClass.COOPERATIVE] == {errors.BudgetExceeded}


def test_a_refusal_carries_the_facts_and_says_them() -> None:
    stale = errors.StaleLease(ID, held=1, current=2)
    assert (stale.execution_id, stale.held, stale.current) == (ID, 1, 2)
    assert str(stale) == f"execution {ID}: lease epoch 1 was superseded by 2"

    inactive = errors.ExecutionNotActive(ID, **ENDED)
    assert {name: getattr(inactive, name) for name in ENDED} == ENDED
    assert "ended as success" in str(inactive)

    missing = errors.NotFound("execution", ID)
    assert (missing.entity, missing.name) == ("execution", ID)
    assert str(ID) in str(missing)


def test_invalid_input_names_the_field_and_what_was_given() -> None:
    error = invalid_input("limit", 0, "must be positive")

    assert (error.code, str(error)) == ("invalid_input", "invalid_input: limit 0 must be positive")


def test_a_validation_code_that_nobody_knows_is_a_bug_of_ours() -> None:
    with pytest.raises(AssertionError):
        ValidationError("made_up", "why")


@pytest.mark.parametrize("seconds", [None, 0.5])
def test_a_timeout_says_how_long_it_was(seconds: float | None) -> None:
    error = errors.OperationTimeout("claim", seconds)

    assert str(error) == ("claim: timed out" if seconds is None else "claim: timed out after 0.5 s")
