"""Executions that were held back before a worker could claim them are let go."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.lock_executions import LockedExecution
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_events
from flowfabric.engine.lifecycle.unblock import unblock
from flowfabric.engine.operators.block_execution_for_admission import blocking_reason
from flowfabric.engine.operators.control import control, only
from flowfabric.errors import EngineError, ExecutionNotEligible
from flowfabric.ids import ExecutionId
from flowfabric.states import BlockingReason, EligibilityState, OperatorEventType

UNBLOCKABLE: Final = frozenset(
    {
        EligibilityState.BLOCKED_BY_BUDGET,
        EligibilityState.BLOCKED_BY_QUOTA,
        EligibilityState.BLOCKED_BY_ROUTE,
        EligibilityState.BLOCKED_BY_OPERATOR,
    }
)


class Unblocked(msgspec.Struct, frozen=True, kw_only=True):
    """The execution is claimable again, or waits for what it came to depend on meanwhile."""

    execution_id: ExecutionId
    eligibility_state: EligibilityState = EligibilityState.ELIGIBLE_NOW


async def unblock_execution(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    expected_blocking_reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> Unblocked:
    """The execution is claimable again, with an operator event.

    A member of a flow that was given an edge while it was paused waits for its upstream. Needs a
    transaction. Raises `NotFound`, and `ExecutionNotEligible` unless a budget, a quota, its route
    or an operator holds the execution back, for the expected reason if one is given.
    """
    return only(
        await unblock_executions(
            conn,
            [execution_id],
            expected_blocking_reason=expected_blocking_reason,
            actor=actor,
            expected_last_mutation_at=expected_last_mutation_at,
            namespaces=namespaces,
        )
    )


async def unblock_executions(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    expected_blocking_reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> list[Unblocked | EngineError]:
    """As `unblock_execution` for at most 1,000 executions, with what that raises as answers.

    The answers come in the order given. Raises `ValidationError` for arguments that cannot be.
    """
    if expected_blocking_reason is not None:
        blocking_reason(expected_blocking_reason)
    check_actor(actor)

    def refusal(seen: LockedExecution) -> EngineError | None:
        if (
            seen.eligibility_state in UNBLOCKABLE
            and seen.blocking_reason != BlockingReason.PAUSED_BY_FLOW_CANCEL
            and expected_blocking_reason in (None, seen.blocking_reason)
        ):
            return None
        return ExecutionNotEligible(
            seen.id, seen.public_state, word=seen.status, wanted="held back so"
        )

    async def change(changing: list[LockedExecution]) -> dict[ExecutionId, Unblocked]:
        unblocked = await unblock(conn, [each.id for each in changing])
        await operator_events(
            conn,
            OperatorEventType.UNBLOCKED,
            {
                each.id: {
                    "old_eligibility_state": each.eligibility_state,
                    "new_eligibility_state": unblocked[each.id].value,
                }
                for each in changing
            },
            actor=actor,
            reason=None,
        )
        return {
            each: Unblocked(execution_id=each, eligibility_state=eligibility)
            for each, eligibility in unblocked.items()
        }

    return await control(
        conn,
        executions,
        decide=refusal,
        change=change,
        seen_at=expected_last_mutation_at,
        namespaces=namespaces,
    )
