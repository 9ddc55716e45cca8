"""Errors that come from the state of an execution, a lane, a key or a subscription."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Final

from flowfabric.errors.base import EngineError, NotFound, RetryClass

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from flowfabric.ids import ExecutionId

_HAS_ENDED: Final = {
    "success": "has completed",
    "failed": "has failed",
    "cancelled": "was cancelled",
    "expired": "has expired",
    "skipped": "was skipped",
}


class Contention(EngineError):
    """The execution is not in the state that the call needs; read it before you call again."""

    kind = "contention"
    http_status = 409
    retry_class = RetryClass.RETRYABLE


class StaleView(Contention):
    """It has changed since the caller read it; read it again, and decide anew."""

    code = "stale_view"
    http_status = 412
    retry_class = RetryClass.TERMINAL

    def __init__(
        self,
        entity: str,
        name: object,
        *,
        seen_at: datetime | None = None,
        changed_at: datetime | None = None,
    ) -> None:
        super().__init__(f"{entity} {name} has changed since it was read")
        self.entity, self.name = entity, name
        self.seen_at, self.changed_at = seen_at, changed_at


class ExecutionNotActive(Contention):
    """The execution has no lease: it has ended, or waits to be claimed.

    A worker that thought it held the lease stops working on the execution.
    """

    code = "execution_not_active"
    retry_class = RetryClass.TERMINAL

    def __init__(
        self,
        execution_id: ExecutionId,
        *,
        lifecycle_phase: str,
        terminal_outcome: str,
        lease_epoch: int,
        attempt_id: object,
        rule: str | None = None,
    ) -> None:
        """`rule` says of an execution that has ended which ones the call is for."""
        ended = f", ended as {terminal_outcome}" if lifecycle_phase == "terminal" else ""
        wanted = "runnable" if lifecycle_phase == "active" else "active"
        state = f"is {lifecycle_phase}{ended}, not {wanted}"
        if rule is not None:
            state = f"{_HAS_ENDED.get(terminal_outcome, 'has ended')}; {rule}"
        super().__init__(f"execution {execution_id} {state}")
        self.execution_id = execution_id
        self.lifecycle_phase, self.terminal_outcome = lifecycle_phase, terminal_outcome
        self.lease_epoch, self.attempt_id = lease_epoch, attempt_id


class ExecutionNotEligible(Contention):
    """The execution does not wait for a worker: it runs, is held back, or has ended."""

    code = "execution_not_eligible"

    def __init__(
        self,
        execution_id: ExecutionId,
        public_state: str,
        *,
        word: str | None = None,
        wanted: str = "waiting for a worker",
    ) -> None:
        super().__init__(f"execution {execution_id} is {word or public_state}, not {wanted}")
        self.execution_id, self.public_state = execution_id, public_state


class RetryExhausted(Contention):
    """Every retry ended in a serialization conflict; nothing was written. Call again later."""

    code = "retry_exhausted"
    http_status = 503

    def __init__(self, operation: str, attempts: int) -> None:
        super().__init__(f"{operation}: gave up after {attempts} serialization conflicts")
        self.operation, self.attempts = operation, attempts


class Conflict(EngineError):
    """The call contradicts what is stored."""

    kind = "conflict"
    http_status = 409


class RotationConflict(Conflict):
    """The key id belongs to another secret or to a retired key; choose another id."""

    code = "rotation_conflict"

    def __init__(self, kid: str, why: str) -> None:
        super().__init__(f"kid {kid!r} {why}")
        self.kid = kid


class UniqueKeyTaken(Conflict):
    """Another execution has the unique key of this one; replay this one when that has ended.

    `execution_id` is the other execution. Nothing was written.
    """

    code = "unique_key_taken"

    def __init__(self, key: str, *, execution_id: ExecutionId) -> None:
        super().__init__(f"unique key {key!r} belongs to execution {execution_id}")
        self.key, self.execution_id = key, execution_id


class IdempotencyConflict(Conflict):
    """The idempotency key belongs to an execution, or a flow, that was submitted with other input.

    `differs` says what: `kind`, `payload`, or `members` of a flow. `execution_id` is the execution
    of the key; of a flow (`flow_id`) its first member. Nothing was created.
    """

    code = "idempotency_conflict"

    def __init__(
        self,
        idempotency_key: str,
        *,
        execution_id: ExecutionId,
        differs: Sequence[str],
        flow_id: UUID | None = None,
    ) -> None:
        what = f"execution {execution_id}" if flow_id is None else f"flow {flow_id}"
        others = " and ".join(
            "other members" if one == "members" else f"another {one}" for one in differs
        )
        super().__init__(
            f"idempotency_key {idempotency_key!r} belongs to {what}, which was submitted with "
            f"{others}; use another key, or on_conflict='return' to get that {what.split()[0]}"
        )
        self.idempotency_key, self.differs = idempotency_key, tuple(differs)
        self.execution_id, self.flow_id = execution_id, flow_id


class StateError(EngineError):
    """The state of the execution or lane refuses the call; repeating it does not help."""

    kind = "state"
    http_status = 409


class StaleLease(StateError):
    """The execution has a newer lease; the worker drops the work and claims again."""

    code = "stale_lease"

    def __init__(self, execution_id: ExecutionId, *, held: int, current: int) -> None:
        super().__init__(
            f"execution {execution_id}: lease epoch {held} was superseded by {current}"
        )
        self.execution_id, self.held, self.current = execution_id, held, current


class LeaseExpired(StateError):
    """The lease expired before the call; the worker drops the work."""

    code = "lease_expired"

    def __init__(self, execution_id: ExecutionId, *, lease_epoch: int) -> None:
        super().__init__(f"execution {execution_id}: the lease of epoch {lease_epoch} expired")
        self.execution_id, self.lease_epoch = execution_id, lease_epoch


class StreamClosed(StateError):
    """The attempt does not run, so nothing can be appended to its stream."""

    code = "stream_closed"

    def __init__(self, execution_id: ExecutionId, attempt_index: int, *, phase: str) -> None:
        super().__init__(
            f"the stream of execution {execution_id}, attempt {attempt_index}, takes no frame: the"
            f" execution is {phase}, not active"
        )
        self.execution_id, self.attempt_index, self.lifecycle_phase = (
            execution_id,
            attempt_index,
            phase,
        )


class StaleOwnerCannotAppend(StateError):
    """The worker does not hold the lease, so it cannot append; it drops the work."""

    code = "stale_owner_cannot_append"

    def __init__(self, execution_id: ExecutionId, attempt_index: int, *, why: str) -> None:
        super().__init__(why)
        self.execution_id, self.attempt_index = execution_id, attempt_index


class ExecutionNotTerminal(StateError):
    """The execution has not ended, so it cannot be replayed."""

    code = "execution_not_terminal"

    def __init__(self, execution_id: ExecutionId, public_state: str) -> None:
        super().__init__(f"execution {execution_id} is {public_state}; it has not ended")
        self.execution_id, self.public_state = execution_id, public_state


class MaxReplaysExhausted(StateError):
    """The execution was replayed as often as its policy allows."""

    code = "max_replays_exhausted"

    def __init__(self, execution_id: ExecutionId, replay_count: int) -> None:
        super().__init__(f"execution {execution_id} was replayed {replay_count} times already")
        self.execution_id, self.replay_count = execution_id, replay_count


class LaneNotAccepting(StateError):
    """The lane is draining or disabled: it takes no new executions and no replays.

    Nothing was created or replayed. An operator opens the lane with `ff lanes resume`.
    """

    code = "lane_not_accepting"

    def __init__(self, lane_id: str, lane_state: str) -> None:
        super().__init__(
            f"lane {lane_id!r} is {lane_state} and takes no new executions; "
            f"open it with: ff lanes resume {quote(lane_id)}"
        )
        self.lane_id, self.lane_state = lane_id, lane_state


class TaskConsumed(StateError):
    """An earlier call on this claimed task has ended it."""

    code = "attempt_already_terminal"
    retry_class = RetryClass.INFORMATIONAL


class StreamDisconnected(EngineError):
    """The subscription lost its connection and ended; subscribe again with `cursor`."""

    kind = "stream_disconnected"
    code = "stream_disconnected"
    http_status = 503

    def __init__(self, cursor: bytes) -> None:
        super().__init__(
            f"the subscription lost its connection; continue from cursor {cursor.hex() or 'now'}"
        )
        self.cursor = cursor


Refusal = NotFound | ExecutionNotActive | StaleLease | LeaseExpired
"""Why a fenced call on one execution was refused."""
