"""Errors of claim and reclaim grants, and of claims by execution id."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from flowfabric.errors.base import EngineError, RetryClass
from flowfabric.errors.state import Conflict, Contention, StateError

if TYPE_CHECKING:
    from flowfabric.ids import ExecutionId


class ExecutionNotLeaseable(Contention):
    """The execution cannot be claimed now, or its next attempt is not the expected one."""

    code = "execution_not_leaseable"

    def __init__(self, execution_id: ExecutionId, why: str) -> None:
        super().__init__(f"execution {execution_id} cannot be claimed: {why}")
        self.execution_id = execution_id


class LeaseConflict(Contention):
    """Another worker holds the lease of the execution."""

    code = "lease_conflict"

    def __init__(self, execution_id: ExecutionId) -> None:
        super().__init__(f"execution {execution_id} is leased to another worker")
        self.execution_id = execution_id


class UseClaimResumed(Contention):
    """The last attempt was interrupted: continue it with `claim_resumed_execution`."""

    code = "use_claim_resumed_execution"

    def __init__(self, execution_id: ExecutionId) -> None:
        super().__init__(f"execution {execution_id} was interrupted: use claim_resumed_execution")
        self.execution_id = execution_id


class NotAResumedExecution(Contention):
    """No attempt was interrupted: claim the execution with `claim_execution`."""

    code = "not_a_resumed_execution"

    def __init__(self, execution_id: ExecutionId) -> None:
        super().__init__(f"execution {execution_id} was not interrupted: use claim_execution")
        self.execution_id = execution_id


class InvalidClaimGrant(Contention):
    """The worker has no grant for the execution: ask the scheduler for one."""

    code = "invalid_claim_grant"

    def __init__(self, execution_id: ExecutionId, worker_id: str) -> None:
        super().__init__(f"execution {execution_id}: worker {worker_id!r} has no claim grant")
        self.execution_id, self.worker_id = execution_id, worker_id


class ClaimGrantExpired(Contention):
    """The grant expired before it was used: ask the scheduler for another."""

    code = "claim_grant_expired"

    def __init__(self, execution_id: ExecutionId) -> None:
        super().__init__(f"execution {execution_id}: the claim grant expired")
        self.execution_id = execution_id


class ActiveAttemptExists(Conflict):
    """The execution is running."""

    code = "active_attempt_exists"

    def __init__(self, execution_id: ExecutionId) -> None:
        super().__init__(f"execution {execution_id} has a running attempt")
        self.execution_id = execution_id


class GrantAlreadyExists(StateError):
    """An unexpired grant reserves the execution for a worker; wait until the grant expires."""

    code = "grant_already_exists"
    retry_class = RetryClass.INFORMATIONAL

    def __init__(self, execution_id: ExecutionId) -> None:
        super().__init__(f"execution {execution_id} has an unexpired grant")
        self.execution_id = execution_id


class InvalidGrant(EngineError):
    """The grant is malformed, forged, unknown or expired; `code` says which."""

    kind = "validation"
    http_status = 400
    CODES: ClassVar[frozenset[str]] = frozenset(
        {
            "grant_expired",
            "grant_malformed",
            "grant_signature_mismatch",
            "grant_unknown",
            "grant_unknown_kid",
        }
    )

    def __init__(self, code: str, detail: str) -> None:
        assert code in self.CODES, code
        super().__init__(f"{code}: {detail}")
        self.code, self.detail = code, detail
