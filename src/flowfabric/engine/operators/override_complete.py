"""active → terminal(success): an operator completes executions in place of their workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.complete import Completed
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR
from flowfabric.engine.operators.control import only
from flowfabric.engine.operators.override import override_end
from flowfabric.errors import EngineError
from flowfabric.ids import ExecutionId
from flowfabric.states import OperatorEventType, PublicState, TerminalOutcome


async def override_complete(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    result: bytes | None = None,
    encoding: str | None = None,
    reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> Completed:
    """The execution has ended with success and this result, without a fence; needs a transaction.

    `encoding` is that of the result; None means: as the payload.
    The lease is void, and its holder's writes are refused; one operator event records who did it.
    Completed so before: the same answer and nothing written. Raises `NotFound`, and
    `ExecutionNotActive` unless a worker holds the execution, under a lease that may have expired.
    """
    return only(
        await override_completes(
            conn,
            [execution_id],
            result=result,
            encoding=encoding,
            reason=reason,
            actor=actor,
            expected_last_mutation_at=expected_last_mutation_at,
            namespaces=namespaces,
        )
    )


async def override_completes(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    result: bytes | None = None,
    encoding: str | None = None,
    reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> list[Completed | EngineError]:
    """As `override_complete` for at most 1,000 executions, with what that raises as answers.

    Each has the same result. The answers come in the order given. Raises `ValidationError` for
    arguments that cannot be.
    """
    return await override_end(
        conn,
        executions,
        outcome=TerminalOutcome.SUCCESS,
        event_type=OperatorEventType.COMPLETED,
        after=PublicState.COMPLETED,
        answer=lambda each, repeated: Completed(execution_id=each, repeated=repeated),
        reason=reason,
        actor=actor,
        result=result,
        result_encoding=encoding,
        seen_at=expected_last_mutation_at,
        namespaces=namespaces,
    )
