"""Executions that wait for a worker change their place in the queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.lock_executions import LockedExecution
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_events
from flowfabric.engine.lifecycle.reprioritise import reprioritise
from flowfabric.engine.operators.control import control, only
from flowfabric.errors import EngineError, ExecutionNotEligible, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.policy import clamp_priority
from flowfabric.states import EligibilityState, OperatorEventType


class PriorityChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The execution has this priority now."""

    execution_id: ExecutionId
    priority: int


async def change_priority(
    conn: Connection,
    execution_id: ExecutionId,
    new_priority: int,
    *,
    actor: str = DEFAULT_ACTOR,
    reason: str | None = None,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> PriorityChanged:
    """The execution is claimed by its new priority, clamped to 0 … 9000; needs a transaction.

    One operator event records the change. Raises `NotFound`, and `ExecutionNotEligible` unless the
    execution waits for a worker.
    """
    return only(
        await change_priorities(
            conn,
            [execution_id],
            new_priority,
            actor=actor,
            reason=reason,
            expected_last_mutation_at=expected_last_mutation_at,
            namespaces=namespaces,
        )
    )


async def change_priorities(
    conn: Connection,
    executions: Sequence[ExecutionId],
    new_priority: int,
    *,
    actor: str = DEFAULT_ACTOR,
    reason: str | None = None,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> list[PriorityChanged | EngineError]:
    """As `change_priority` for at most 1,000 executions, with what that raises as answers.

    The answers come in the order given. Raises `ValidationError` for arguments that cannot be.
    """
    check_actor(actor)
    if type(new_priority) is not int:
        raise invalid_input("new_priority", new_priority, "must be a whole number")
    priority = clamp_priority(new_priority)

    async def change(changing: list[LockedExecution]) -> dict[ExecutionId, PriorityChanged]:
        await reprioritise(conn, [each.id for each in changing], priority=priority)
        await operator_events(
            conn,
            OperatorEventType.PRIORITY_CHANGED,
            {
                each.id: {"old_priority": each.priority, "new_priority": priority}
                for each in changing
            },
            actor=actor,
            reason=reason,
        )
        return {
            each.id: PriorityChanged(execution_id=each.id, priority=priority) for each in changing
        }

    return await control(
        conn,
        executions,
        decide=_refusal,
        change=change,
        seen_at=expected_last_mutation_at,
        namespaces=namespaces,
    )


def _refusal(seen: LockedExecution) -> EngineError | None:
    if seen.eligibility_state == EligibilityState.ELIGIBLE_NOW:
        return None
    return ExecutionNotEligible(seen.id, seen.public_state, word=seen.status)
