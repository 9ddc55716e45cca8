"""Executions that wait for a worker are held back: by a budget, a quota, their route or a pause."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.block import block
from flowfabric.engine.lifecycle.lock_executions import LockedExecution
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_events
from flowfabric.engine.operators.control import control, only
from flowfabric.errors import (
    EngineError,
    ExecutionNotActive,
    ExecutionNotEligible,
    ValidationError,
)
from flowfabric.ids import ExecutionId
from flowfabric.states import (
    BlockingReason,
    EligibilityState,
    LifecyclePhase,
    OperatorEventType,
)

ELIGIBILITY_OF: Final = {
    BlockingReason.WAITING_FOR_BUDGET: EligibilityState.BLOCKED_BY_BUDGET,
    BlockingReason.WAITING_FOR_QUOTA: EligibilityState.BLOCKED_BY_QUOTA,
    BlockingReason.WAITING_FOR_CAPABLE_WORKER: EligibilityState.BLOCKED_BY_ROUTE,
    BlockingReason.PAUSED_BY_OPERATOR: EligibilityState.BLOCKED_BY_OPERATOR,
    BlockingReason.PAUSED_BY_POLICY: EligibilityState.BLOCKED_BY_LANE_STATE,
}


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """The execution is not claimable until it is unblocked."""

    execution_id: ExecutionId
    eligibility_state: EligibilityState


async def block_execution_for_admission(
    conn: Connection,
    execution_id: ExecutionId,
    reason: str,
    *,
    detail: str | None = None,
    actor: str = DEFAULT_ACTOR,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> Blocked:
    """The execution is held back for `reason`, with an operator event.

    Needs a transaction. Raises `ValidationError(invalid_blocking_reason)`, `NotFound`,
    `ExecutionNotActive` when the execution has ended, and `ExecutionNotEligible` unless it waits
    for a worker.
    """
    return only(
        await block_executions_for_admission(
            conn,
            [execution_id],
            reason,
            detail=detail,
            actor=actor,
            expected_last_mutation_at=expected_last_mutation_at,
            namespaces=namespaces,
        )
    )


async def block_executions_for_admission(
    conn: Connection,
    executions: Sequence[ExecutionId],
    reason: str,
    *,
    detail: str | None = None,
    actor: str = DEFAULT_ACTOR,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> list[Blocked | EngineError]:
    """As `block_execution_for_admission` for at most 1,000 executions, with refusals as answers.

    The answers come in the order given. Raises `ValidationError` for arguments that cannot be.
    """
    why = blocking_reason(reason)
    eligibility = ELIGIBILITY_OF.get(why)
    if eligibility is None:
        raise _unknown(reason)
    check_actor(actor)

    async def change(changing: list[LockedExecution]) -> dict[ExecutionId, Blocked]:
        blocked = [each.id for each in changing]
        await block(conn, blocked, eligibility=eligibility, reason=why, detail=detail)
        facts = {
            "old_eligibility_state": EligibilityState.ELIGIBLE_NOW.value,
            "new_eligibility_state": eligibility.value,
        }
        await operator_events(
            conn,
            OperatorEventType.BLOCKED,
            dict.fromkeys(blocked, facts),
            actor=actor,
            reason=detail,
        )
        return {each: Blocked(execution_id=each, eligibility_state=eligibility) for each in blocked}

    return await control(
        conn,
        executions,
        decide=_refusal,
        change=change,
        seen_at=expected_last_mutation_at,
        namespaces=namespaces,
    )


def blocking_reason(reason: str) -> BlockingReason:
    """The reason of that name; raises `ValidationError(invalid_blocking_reason)`."""
    try:
        return BlockingReason(reason)
    except ValueError:
        raise _unknown(reason) from None


def _unknown(reason: str) -> ValidationError:
    known = ", ".join(sorted(ELIGIBILITY_OF))
    return ValidationError("invalid_blocking_reason", f"reason {reason!r} is not one of {known}")


def _refusal(seen: LockedExecution) -> EngineError | None:
    if seen.lifecycle_phase == LifecyclePhase.TERMINAL:
        return ExecutionNotActive(
            seen.id,
            lifecycle_phase=seen.lifecycle_phase,
            terminal_outcome=seen.terminal_outcome,
            lease_epoch=seen.lease_epoch,
            attempt_id=seen.attempt_id,
            rule="only a waiting execution can be blocked",
        )
    if seen.eligibility_state != EligibilityState.ELIGIBLE_NOW:
        return ExecutionNotEligible(seen.id, seen.public_state, word=seen.status)
    return None
