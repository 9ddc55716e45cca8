"""Decides on one request to suspend: the checks in their order, under the locks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from flowfabric.conditions import check_timeout, is_satisfied, satisfiers
from flowfabric.engine.keys.key import Key
from flowfabric.engine.lifecycle.sql.fence import SeenExecution, refusal
from flowfabric.engine.suspensions.store_suspensions import NewSuspension, StoredAnswer
from flowfabric.engine.suspensions.suspension import (
    Fresh,
    NothingToSuspendFor,
    SatisfiedAlready,
    SuspendAnswer,
    Suspended,
    SuspendRequest,
    UsePending,
    WaitpointDetails,
)
from flowfabric.engine.suspensions.waitpoint import StoredSignal, WaitpointRow, decode_signals
from flowfabric.errors import (
    AlreadySuspended,
    EngineError,
    PendingWaitpointExpired,
    ValidationError,
    WaitpointAlreadyExists,
    WaitpointNotFound,
    WaitpointNotPending,
)
from flowfabric.instants import instant
from flowfabric.states import LifecyclePhase, WaitpointState
from flowfabric.tokens import WaitpointToken, sign_token


class Place(NamedTuple):
    """Where a waitpoint is stored."""

    partition_key: int
    waitpoint_id: UUID


class LeasedExecution(SeenExecution, frozen=True):
    """The locked execution of a request, and what a call with the same key was answered."""

    signal_seq: int
    live: bool
    """Is it leased, and has the lease not expired?"""
    suspension_id: UUID | None
    """Of the last suspension, if the attempt of the request is the one that was suspended."""
    answered: str | None
    now_ms: int

    @property
    def answer(self) -> StoredAnswer | None:
        """The stored answer to the same idempotency key."""
        if self.answered is None:
            return None
        return msgspec.json.decode(self.answered, type=StoredAnswer)


class Plans:
    """The plans of one batch: the waitpoints as they are, and the key that signs tokens."""

    def __init__(self, waitpoints: Mapping[Place, WaitpointRow], key: Key | None) -> None:
        self._waitpoints, self._key = waitpoints, key
        self._bound: set[Place] = set()

    def plan(
        self, request: SuspendRequest, seen: LeasedExecution, *, is_decided: bool
    ) -> SuspendAnswer | EngineError | NewSuspension:
        """The answer, or the suspension that is to be stored.

        `is_decided` says that one of the joins that the handler would wait for is.
        """
        try:
            if request.timeout_at is not None and not request.is_handler:
                check_timeout(request.timeout_at, instant(seen.now_ms))
            before = self._answered_before(request, seen)
            if before is not None:
                return before
            obstacle = _obstacle(request, seen)
            if obstacle is not None:
                return obstacle
            has_signals = request.awaits_signals and seen.signal_seq > (request.signals_read or 0)
            if is_decided or has_signals:
                return NothingToSuspendFor(execution_id=request.lease.execution_id)
            return self._bind_all(request, seen)
        except EngineError as error:
            return error

    def _answered_before(
        self, request: SuspendRequest, seen: LeasedExecution
    ) -> Suspended | SatisfiedAlready | None:
        """The first answer to a call that is repeated, by its key or the id of its suspension."""
        answer = seen.answer
        if answer is not None:
            ids, satisfied = answer.waitpoints, answer.satisfied
        elif seen.suspension_id == request.suspension_id and seen.was_ended_by(request.lease):
            ids = tuple([each.waitpoint_id for each in request.bindings])
            satisfied = seen.lifecycle_phase == LifecyclePhase.ACTIVE
            if satisfied and request.keeps_waitpoints:
                return None  # a handler has stored nothing under this lease
        else:
            return None
        home = request.lease.execution_id.partition_key
        rows = [self._waitpoints.get(Place(home, each)) for each in ids]
        return (SatisfiedAlready if satisfied else Suspended)(
            execution_id=request.lease.execution_id,
            suspension_id=request.suspension_id if answer is None else answer.suspension_id,
            waitpoints=tuple([details_of(row) for row in rows if row is not None]),
            repeated=True,
        )

    def _bind_all(
        self, request: SuspendRequest, seen: LeasedExecution
    ) -> NothingToSuspendFor | NewSuspension:
        if self._key is None and any(isinstance(each, Fresh) for each in request.bindings):
            why = "keystore empty: no key signs tokens; ff keys seed makes one"
            raise ValidationError("invalid_input", why)
        details = [self._bind(request, each, seen.now_ms) for each in request.bindings]
        request.check_keys([each.waitpoint_key for each in details])
        signals = self._signals(request, details)
        found = tuple(satisfiers(request.condition, signals))
        if is_satisfied(request.condition, signals) and request.keeps_waitpoints:
            return NothingToSuspendFor(execution_id=request.lease.execution_id)
        return NewSuspension(
            request=request,
            waitpoints=tuple(details),
            close_reason="resumed" if found else None,
            satisfiers=found,
        )

    def _bind(
        self, request: SuspendRequest, binding: Fresh | UsePending, now_ms: int
    ) -> WaitpointDetails:
        execution_id, waitpoint_id = request.lease.execution_id, binding.waitpoint_id
        place = Place(execution_id.partition_key, waitpoint_id)
        row, again = self._waitpoints.get(place), place in self._bound
        self._bound.add(place)
        if isinstance(binding, Fresh):
            if row is not None or again:
                raise WaitpointAlreadyExists(waitpoint_id)
            assert self._key is not None
            token = sign_token(self._key.kid, self._key.secret, execution_id, waitpoint_id)
            key = binding.waitpoint_key or ""
            return WaitpointDetails(waitpoint_id=waitpoint_id, waitpoint_key=key, token=token)
        if row is None:
            raise WaitpointNotFound(waitpoint_id)
        if row.state != WaitpointState.PENDING or again:
            state = WaitpointState.ACTIVE if again else WaitpointState(row.state)
            raise WaitpointNotPending(waitpoint_id, state)
        if row.execution_id != execution_id.uuid or not (
            request.keeps_waitpoints or row.attempt_index == request.lease.attempt_index
        ):
            why = f"waitpoint {waitpoint_id} belongs to another execution or attempt"
            raise ValidationError("invalid_waitpoint_for_execution", why, field="waitpoint_id")
        if row.expires_at_ms is not None and row.expires_at_ms <= now_ms:
            raise PendingWaitpointExpired(waitpoint_id)
        if not row.token:
            why = f"waitpoint {waitpoint_id} has no token"
            raise ValidationError("waitpoint_not_token_bound", why, field="waitpoint_id")
        return details_of(row)

    def _signals(
        self, request: SuspendRequest, details: Sequence[WaitpointDetails]
    ) -> dict[str, list[StoredSignal]]:
        """The signals that have arrived, by the key of their waitpoint."""
        home = request.lease.execution_id.partition_key
        signals: dict[str, list[StoredSignal]] = {}
        for each in details:
            row = self._waitpoints.get(Place(home, each.waitpoint_id))
            if row is not None:
                signals.setdefault(each.waitpoint_key, []).extend(decode_signals(row.signals))
        return signals


def details_of(row: WaitpointRow) -> WaitpointDetails:
    """The waitpoint of this row, with its token."""
    return WaitpointDetails(
        waitpoint_id=row.waitpoint_id,
        waitpoint_key=row.waitpoint_key,
        token=WaitpointToken(row.token),
    )


def _obstacle(request: SuspendRequest, seen: LeasedExecution) -> EngineError | None:
    """Why the caller does not hold the lease; None if it does."""
    lease = request.lease
    if seen.lifecycle_phase == LifecyclePhase.SUSPENDED:
        return AlreadySuspended(lease.execution_id)
    holds = seen.lifecycle_phase == LifecyclePhase.ACTIVE and seen.was_ended_by(lease)
    return None if holds and seen.live else refusal(lease, seen)
