"""active → terminal(failed): an operator fails executions in place of their workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.fail import TerminalFailed
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR
from flowfabric.engine.operators.cancel_execution import OPERATOR
from flowfabric.engine.operators.control import only
from flowfabric.engine.operators.override import override_end
from flowfabric.errors import EngineError
from flowfabric.ids import ExecutionId
from flowfabric.states import OperatorEventType, PublicState, TerminalOutcome


async def override_fail(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    reason: str,
    actor: str = DEFAULT_ACTOR,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> TerminalFailed:
    """The execution has failed for this reason, without a fence or a retry; needs a transaction.

    Its failure category is `operator_override`. The lease is void, and its holder's writes are
    refused; one operator event records who did it. Failed so before: the same answer and nothing
    written. Raises `NotFound`, and `ExecutionNotActive` unless a worker holds the execution, under
    a lease that may have expired.
    """
    return only(
        await override_fails(
            conn,
            [execution_id],
            reason=reason,
            actor=actor,
            expected_last_mutation_at=expected_last_mutation_at,
            namespaces=namespaces,
        )
    )


async def override_fails(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    reason: str,
    actor: str = DEFAULT_ACTOR,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> list[TerminalFailed | EngineError]:
    """As `override_fail` for at most 1,000 executions, with what that raises as answers.

    The answers come in the order given. Raises `ValidationError` for arguments that cannot be.
    """
    return await override_end(
        conn,
        executions,
        outcome=TerminalOutcome.FAILED,
        event_type=OperatorEventType.FAILED,
        after=PublicState.FAILED,
        answer=lambda each, repeated: TerminalFailed(execution_id=each, repeated=repeated),
        reason=reason,
        actor=actor,
        failure_reason=reason,
        failure_category=OPERATOR,
        seen_at=expected_last_mutation_at,
        namespaces=namespaces,
    )
