"""Refusals of claim and reclaim grants, and of claims by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from flowfabric.errors.base import EngineError, RetryClass
from flowfabric.errors.state import Conflict, Contention, StateError

if TYPE_CHECKING:
    from flowfabric.ids import ExecutionId


class ExecutionNotLeaseable(Contention):
    """It may not be claimed now, or its next attempt is another than the caller expected."""

    code = "execution_not_leaseable"

    def __init__(self, execution_id: ExecutionId, why: str) -> None:
        super().__init__(f"execution {execution_id} cannot be claimed: {why}")
        self.execution_id = execution_id


class LeaseConflict(Contention):
    """Somebody else holds it."""

    code = "lease_conflict"

    def __init__(self, execution_id: ExecutionId) -> None:
        super().__init__(f"execution {execution_id} is held by another worker")
        self.execution_id = execution_id


class UseClaimResumed(Contention):
    """Its attempt was interrupted: it is taken up again with `claim_resumed_execution`."""

    code = "use_claim_resumed_execution"

    def __init__(self, execution_id: ExecutionId) -> None:
        super().__init__(f"execution {execution_id} was interrupted: use claim_resumed_execution")
        self.execution_id = execution_id


class NotAResumedExecution(Contention):
    """No attempt of it was interrupted: it is claimed with `claim_execution`."""

    code = "not_a_resumed_execution"

    def __init__(self, execution_id: ExecutionId) -> None:
        super().__init__(f"execution {execution_id} was not interrupted: use claim_execution")
        self.execution_id = execution_id


class InvalidClaimGrant(Contention):
    """This worker has no grant for the execution."""

    code = "invalid_claim_grant"

    def __init__(self, execution_id: ExecutionId, worker_id: str) -> None:
        super().__init__(f"execution {execution_id}: worker {worker_id!r} has no claim grant")
        self.execution_id, self.worker_id = execution_id, worker_id


class ClaimGrantExpired(Contention):
    """The grant ran out before it was used; ask for another."""

    code = "claim_grant_expired"

    def __init__(self, execution_id: ExecutionId) -> None:
        super().__init__(f"execution {execution_id}: the claim grant ran out")
        self.execution_id = execution_id


class ActiveAttemptExists(Conflict):
    """An attempt runs already."""

    code = "active_attempt_exists"

    def __init__(self, execution_id: ExecutionId) -> None:
        super().__init__(f"execution {execution_id} has an attempt that runs")
        self.execution_id = execution_id


class GrantAlreadyExists(StateError):
    """The execution is promised to a worker; the grant runs out by itself."""

    code = "grant_already_exists"
    retry_class = RetryClass.INFORMATIONAL

    def __init__(self, execution_id: ExecutionId) -> None:
        super().__init__(f"execution {execution_id} has a grant that has not run out")
        self.execution_id = execution_id


class InvalidGrant(EngineError):
    """A grant that is not, or no longer, what it claims to be; `code` says what is wrong."""

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
