"""Waitpoints are made and executions suspended, in the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from flowfabric.conditions import Condition, OperatorOnly, TimeoutOnly
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.suspensions.suspension import (
    Fresh,
    NothingToSuspendFor,
    SatisfiedAlready,
    Suspended,
    SuspendRequest,
    WaitpointDetails,
)
from flowfabric.errors import (
    AlreadySuspended,
    EngineError,
    PendingWaitpointExpired,
    ValidationError,
    WaitpointAlreadyExists,
    WaitpointNotFound,
    WaitpointNotPending,
)
from flowfabric.ids import ExecutionId
from flowfabric.instants import epoch_ms
from flowfabric.policy import milliseconds
from flowfabric.states import WaitpointState
from flowfabric.tokens import WaitpointToken, sign_token
from tests.proofs.model.conditions import Signals, found, holds, keys, leaves
from tests.proofs.model.moves import refusal, was_left_by
from tests.proofs.model.real import KID, SECRET
from tests.proofs.model.records import Execution, World
from tests.proofs.model.wait_records import Received, Suspension, Waitpoint

MINUTE_MS = 60_000
WEEK_MS = 7 * 24 * 60 * MINUTE_MS
SKEW_MS = 10 * MINUTE_MS
BLOCKS = {"waiting_for_operator_review": "paused_by_operator"}


def token_of(execution_id: ExecutionId, waitpoint_id: UUID) -> WaitpointToken:
    return sign_token(KID, bytes.fromhex(SECRET), execution_id, waitpoint_id)


def create_waitpoint(
    world: World, lease: Lease, key: str, *, expires_ms: int, waitpoint_id: UUID
) -> tuple[UUID, str]:
    refused = refusal(world, lease)
    if refused is not None:
        raise refused
    each = world.executions[lease.execution_id]
    if waitpoint_id not in each.waitpoints:
        each.waitpoints[waitpoint_id] = Waitpoint(
            waitpoint_id=waitpoint_id,
            waitpoint_key=key,
            attempt_index=lease.attempt_index,
            created_at_ms=world.now_ms,
            expires_at_ms=world.now_ms + expires_ms,
        )
    return waitpoint_id, token_of(each.execution_id, waitpoint_id).reveal()


def suspend(world: World, request: SuspendRequest) -> Any:
    """The answer to one request; the checks in the order of the contract."""
    each = world.executions.get(request.lease.execution_id)
    timeout_ms = None if request.timeout_at is None else epoch_ms(request.timeout_at)
    if timeout_ms is not None and not request.is_handler and timeout_ms + SKEW_MS < world.now_ms:
        return ValidationError("invalid_input", "timeout_at_in_past", field="timeout_at")
    if each is None:
        return refusal(world, request.lease)
    again = _answered(world, each, request)
    if again is not None:
        return again
    if each.lifecycle_phase == "suspended":
        return AlreadySuspended(each.execution_id)
    refused = refusal(world, request.lease)
    if refused is not None:
        return refused
    if request.awaits_signals and each.signal_seq > (request.signals_read or 0):
        return NothingToSuspendFor(execution_id=each.execution_id)
    try:
        bound = _bound(world, each, request)
    except EngineError as error:
        return error
    signals: Signals = {}
    for waitpoint in bound:
        signals.setdefault(waitpoint.waitpoint_key, []).extend(waitpoint.signals)
    satisfied = holds(request.condition, signals)
    if satisfied and request.keeps_waitpoints:
        return NothingToSuspendFor(execution_id=each.execution_id)
    _store(world, each, request, bound, found(request.condition, signals) if satisfied else None)
    answer = _answer(request, request.suspension_id, bound, satisfied=satisfied)
    if request.idempotency_key is not None:
        wait_ms = WEEK_MS
        if timeout_ms is not None:
            wait_ms = min(timeout_ms - world.now_ms + MINUTE_MS, WEEK_MS)
        ids = tuple(waitpoint.waitpoint_id for waitpoint in bound)
        kept = (satisfied, request.suspension_id, ids, world.now_ms + wait_ms)
        each.answers[request.idempotency_key] = kept
    return answer


def _answered(world: World, each: Execution, request: SuspendRequest) -> Any:
    kept = each.answers.get(request.idempotency_key or "")
    if kept is not None and kept[3] > world.now_ms:
        satisfied, suspension_id, ids, _ = kept
    elif (
        each.suspension is not None
        and each.suspension.suspension_id == request.suspension_id
        and each.suspension.attempt_index == request.lease.attempt_index
        and was_left_by(each, request.lease)
    ):
        satisfied, suspension_id = each.lifecycle_phase == "active", request.suspension_id
        if satisfied and request.keeps_waitpoints:
            return None
        ids = tuple(binding.waitpoint_id for binding in request.bindings)
    else:
        return None
    bound = [each.waitpoints[one] for one in ids if one in each.waitpoints]
    return _answer(request, suspension_id, bound, satisfied=satisfied, repeated=True)


def _answer(
    request: SuspendRequest,
    suspension_id: UUID,
    bound: Sequence[Waitpoint],
    *,
    satisfied: bool,
    repeated: bool = False,
) -> Suspended | SatisfiedAlready:
    execution_id = request.lease.execution_id
    return (SatisfiedAlready if satisfied else Suspended)(
        execution_id=execution_id,
        suspension_id=suspension_id,
        waitpoints=tuple(
            WaitpointDetails(
                waitpoint_id=one.waitpoint_id,
                waitpoint_key=one.waitpoint_key,
                token=token_of(execution_id, one.waitpoint_id),
            )
            for one in bound
        ),
        repeated=repeated,
    )


def _bound(world: World, each: Execution, request: SuspendRequest) -> list[Waitpoint]:
    """The waitpoints of the bindings, as they are before; raises the first obstacle."""
    bound: list[Waitpoint] = []
    for binding in request.bindings:
        at = binding.waitpoint_id
        known = each.waitpoints.get(at) or world.waitpoint(each.execution_id, at)
        again = any(one.waitpoint_id == at for one in bound)
        if isinstance(binding, Fresh):
            if known is not None or again:
                raise WaitpointAlreadyExists(at)
            bound.append(
                Waitpoint(
                    waitpoint_id=at,
                    waitpoint_key=binding.waitpoint_key or "",
                    attempt_index=request.lease.attempt_index,
                    created_at_ms=world.now_ms,
                    expires_at_ms=None,
                    fresh=True,
                )
            )
            continue
        if known is None:
            raise WaitpointNotFound(at)
        if known.state != "pending" or again:
            raise WaitpointNotPending(at, WaitpointState("active" if again else known.state))
        own = request.keeps_waitpoints or known.attempt_index == request.lease.attempt_index
        if at not in each.waitpoints or not own:
            raise ValidationError("invalid_waitpoint_for_execution", "", field="waitpoint_id")
        if known.expires_at_ms is not None and known.expires_at_ms <= world.now_ms:
            raise PendingWaitpointExpired(at)
        bound.append(known)
    _check_keys(request.condition, [one.waitpoint_key for one in bound])
    return bound


def _check_keys(condition: Condition, given: Sequence[str]) -> None:
    wanted = {key for leaf in leaves(condition) for key in keys(leaf)}
    alone = len(given) == 1 and isinstance(condition, OperatorOnly | TimeoutOnly)
    if wanted != set(given) and not alone:
        raise ValidationError("invalid_input", "the keys differ", field="condition")


def _store(
    world: World,
    each: Execution,
    request: SuspendRequest,
    bound: Sequence[Waitpoint],
    satisfiers: Sequence[Received] | None,
) -> None:
    timeout_ms = None if request.timeout_at is None else epoch_ms(request.timeout_at)
    closed = "resumed" if satisfiers is not None else None
    if satisfiers is None and each.flow_cancelled:
        closed = "cancelled"
    each.suspension = Suspension(
        suspension_id=request.suspension_id,
        attempt_index=request.lease.attempt_index,
        condition=request.condition,
        behavior=request.timeout_behavior.value,
        reason_code=request.reason.value,
        keeps=request.keeps_waitpoints,
        awaits=request.awaits_signals,
        delay_ms=milliseconds(request.resume_policy.resume_delay or 0),
        suspended_at_ms=world.now_ms,
        timeout_at_ms=None if closed else timeout_ms,
        satisfied_at_ms=None if satisfiers is None else world.now_ms,
        closed_at_ms=world.now_ms if closed else None,
        close_reason=closed,
        satisfiers=[one.line for one in satisfiers or ()],
    )
    for one in bound:
        if one.fresh or not request.keeps_waitpoints:
            one.expires_at_ms = timeout_ms
        one.state = "closed" if closed else "active"
        one.activated_at_ms, one.attempt_index = world.now_ms, request.lease.attempt_index
        one.closed_at_ms, one.close_reason = (world.now_ms, closed) if closed else (None, None)
        one.suspension_id, one.fresh = request.suspension_id, False
        each.waitpoints[one.waitpoint_id] = one
    if satisfiers is None:
        reason = BLOCKS.get(request.reason.value, request.reason.value)
        world.relinquish(each, waiting_for=reason, suspends=True)
