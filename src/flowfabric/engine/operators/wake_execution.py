"""runnable(delayed) → runnable: an operator wakes executions before their delay is over."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.journal.skip_sleeps import skip_sleeps
from flowfabric.engine.lifecycle.lock_executions import LockedExecution
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_events
from flowfabric.engine.lifecycle.promote_delayed import promote_delayed
from flowfabric.engine.operators.control import control, only
from flowfabric.errors import EngineError, ExecutionNotEligible, NotFound
from flowfabric.ids import ExecutionId
from flowfabric.states import EligibilityState, OperatorEventType, PublicState


class Woken(msgspec.Struct, frozen=True, kw_only=True):
    """The execution is claimable."""

    execution_id: ExecutionId
    public_state: PublicState
    skipped: str | None = None
    """The key of the sleep that is over, if it was skipped."""


async def wake_execution(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    skip: bool = False,
    actor: str = DEFAULT_ACTOR,
    reason: str | None = None,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> Woken:
    """The delayed execution is claimable now; needs a transaction.

    A handler whose sleep is not due sleeps on. With `skip` its sleep is over: of several that are
    open the one that would be over first. One operator event records who did it. Raises
    `NotFound`, also for an execution without an open sleep that is to be skipped, and
    `ExecutionNotEligible` unless the execution is delayed.
    """
    return only(
        await wake_executions(
            conn,
            [execution_id],
            skip=skip,
            actor=actor,
            reason=reason,
            expected_last_mutation_at=expected_last_mutation_at,
            namespaces=namespaces,
        )
    )


async def wake_executions(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    skip: bool = False,
    actor: str = DEFAULT_ACTOR,
    reason: str | None = None,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> list[Woken | EngineError]:
    """As `wake_execution` for at most 1,000 executions, with what that raises as answers.

    The answers come in the order given. Raises `ValidationError` for arguments that cannot be.
    """
    check_actor(actor)

    def refusal(seen: LockedExecution) -> EngineError | None:
        if seen.eligibility_state == EligibilityState.NOT_ELIGIBLE_UNTIL_TIME:
            return None
        return ExecutionNotEligible(seen.id, seen.public_state, word=seen.status, wanted="delayed")

    async def change(
        changing: list[LockedExecution],
    ) -> dict[ExecutionId, Woken | EngineError]:
        delayed = [each.id for each in changing]
        skipped = await skip_sleeps(conn, delayed) if skip else {}
        waking = [each for each in delayed if not skip or each in skipped]
        promoted = await promote_delayed(conn, waking)
        await operator_events(
            conn,
            OperatorEventType.WOKEN,
            {
                each: {
                    "old_public_state": PublicState.DELAYED.value,
                    "new_public_state": row.public_state.value,
                    "old_delay_until_ms": row.old_delay_until_ms,
                    "skipped": skipped.get(each),
                }
                for each, row in promoted.items()
            },
            actor=actor,
            reason=reason,
        )
        return {
            each: Woken(
                execution_id=each,
                public_state=promoted[each].public_state,
                skipped=skipped.get(each),
            )
            if each in promoted
            else NotFound("sleep", f"of execution {each}")
            for each in delayed
        }

    return await control(
        conn,
        executions,
        decide=refusal,
        change=change,
        seen_at=expected_last_mutation_at,
        namespaces=namespaces,
    )
