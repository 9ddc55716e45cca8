"""active → terminal(success): an operator completes executions in place of their workers."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.complete import Completed
from flowfabric.engine.lifecycle.lock_executions import LockedExecution
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_events
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.engine.operators.control import control, only
from flowfabric.engine.operators.override import override_facts, override_refusal, with_repeats
from flowfabric.errors import EngineError
from flowfabric.ids import ExecutionId
from flowfabric.states import LeaseEventReason, OperatorEventType, PublicState, TerminalOutcome


async def override_complete(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    result: bytes | None = None,
    reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
) -> Completed:
    """The execution has ended with success and this result, without a fence; needs a transaction.

    The lease is void, and its holder's writes are refused; one operator event records who did it.
    Completed so before: the same answer and nothing written. Raises `NotFound`, and
    `ExecutionNotActive` unless a worker holds the execution, under a lease that may have expired.
    """
    return only(
        await override_completes(conn, [execution_id], result=result, reason=reason, actor=actor)
    )


async def override_completes(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    result: bytes | None = None,
    reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
) -> list[Completed | EngineError]:
    """As `override_complete` for at most 1,000 executions, with what that raises as answers.

    Each has the same result. The answers come in the order given. Raises `ValidationError` for
    arguments that cannot be.
    """
    check_actor(actor)

    async def change(changing: list[LockedExecution]) -> dict[ExecutionId, Completed]:
        await terminalize(
            conn,
            [each.id for each in changing],
            outcome=TerminalOutcome.SUCCESS,
            result=result,
            lease_reason=LeaseEventReason.OPERATOR,
        )
        await operator_events(
            conn,
            OperatorEventType.COMPLETED,
            {each.id: override_facts(each, PublicState.COMPLETED) for each in changing},
            actor=actor,
            reason=reason,
        )
        return {each.id: Completed(execution_id=each.id) for each in changing}

    answers = await control(conn, executions, decide=override_refusal, change=change)
    return await with_repeats(conn, answers, OperatorEventType.COMPLETED, _repeated)


def _repeated(execution_id: ExecutionId) -> Completed:
    return Completed(execution_id=execution_id, repeated=True)
