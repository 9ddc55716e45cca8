"""Suspensions, waitpoints and signals refuse the call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowfabric.errors.base import ValidationError
from flowfabric.errors.state import Conflict, Contention, StateError

if TYPE_CHECKING:
    from uuid import UUID

    from flowfabric.ids import ExecutionId


class InvalidToken(ValidationError):
    """The token is not the token of this waitpoint; the text does not say how it differs."""

    def __init__(
        self, code: str = "invalid_token", detail: str = "the token is not valid for this waitpoint"
    ) -> None:
        super().__init__(code, detail, field="token")


class MissingToken(InvalidToken):
    """No token was given."""

    def __init__(self) -> None:
        super().__init__("missing_token", "a token must be given")


class TokenExpired(InvalidToken):
    """The key that signed the token was rotated, and its grace is over; ask for a new token."""

    def __init__(self) -> None:
        super().__init__("token_expired", "the key of the token was rotated and its grace is over")


class AlreadySuspended(StateError):
    """The execution is suspended already."""

    code = "already_suspended"

    def __init__(self, execution_id: ExecutionId) -> None:
        super().__init__(f"execution {execution_id} is suspended already")
        self.execution_id = execution_id


class AlreadySatisfied(StateError):
    """Signals that arrived before satisfy the condition: there is nothing to wait for."""

    code = "already_satisfied"

    def __init__(self, execution_id: ExecutionId) -> None:
        super().__init__(f"execution {execution_id}: signals satisfy the condition already")
        self.execution_id = execution_id


class ExecutionNotSuspended(StateError):
    """The execution is not suspended, so it cannot be resumed."""

    code = "execution_not_suspended"

    def __init__(self, execution_id: ExecutionId, public_state: str) -> None:
        super().__init__(f"execution {execution_id} is {public_state}, not suspended")
        self.execution_id, self.public_state = execution_id, public_state


class TargetNotSignalable(StateError):
    """The execution has ended: no handler will ever receive the signal."""

    code = "target_not_signalable"

    def __init__(self, execution_id: ExecutionId, public_state: str) -> None:
        super().__init__(f"execution {execution_id} is {public_state} and takes no signals")
        self.execution_id, self.public_state = execution_id, public_state


class WaitpointNotFound(Contention):
    """The waitpoint that a suspension names does not exist."""

    code = "waitpoint_not_found"

    def __init__(self, waitpoint_id: UUID) -> None:
        super().__init__(f"waitpoint {waitpoint_id} does not exist")
        self.waitpoint_id = waitpoint_id


class WaitpointAlreadyExists(Conflict):
    """Another waitpoint has this id."""

    code = "waitpoint_already_exists"

    def __init__(self, waitpoint_id: UUID) -> None:
        super().__init__(f"waitpoint {waitpoint_id} exists already")
        self.waitpoint_id = waitpoint_id


class WaitpointNotPending(StateError):
    """The waitpoint that a suspension names backs another suspension, or is closed."""

    code = "waitpoint_not_pending"

    def __init__(self, waitpoint_id: UUID, state: str) -> None:
        super().__init__(f"waitpoint {waitpoint_id} is {state}, not pending")
        self.waitpoint_id, self.state = waitpoint_id, state


class PendingWaitpointExpired(StateError):
    """The waitpoint that a suspension names has expired."""

    code = "pending_waitpoint_expired"

    def __init__(self, waitpoint_id: UUID) -> None:
        super().__init__(f"waitpoint {waitpoint_id} has expired")
        self.waitpoint_id = waitpoint_id


class WaitpointClosed(StateError):
    """The waitpoint takes no signals any more."""

    code = "waitpoint_closed"

    def __init__(self, waitpoint_id: UUID) -> None:
        super().__init__(f"waitpoint {waitpoint_id} is closed")
        self.waitpoint_id = waitpoint_id
