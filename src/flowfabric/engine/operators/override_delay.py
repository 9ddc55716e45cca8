"""active → runnable(delayed): an operator delays executions in place of their workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.delay import Delayed
from flowfabric.engine.lifecycle.lock_executions import LockedExecution
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_events
from flowfabric.engine.lifecycle.postpone import postpone
from flowfabric.engine.operators.control import control, only
from flowfabric.engine.operators.override import override_facts, override_refusal
from flowfabric.errors import EngineError, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.instants import check_instant, epoch_ms
from flowfabric.policy import milliseconds
from flowfabric.states import OperatorEventType, PublicState


async def override_delay(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    delay: float | timedelta | None = None,
    delay_until: datetime | None = None,
    reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> Delayed:
    """The attempt is interrupted until `delay_until`, or for `delay`; needs a transaction.

    The lease is void, and its holder's writes are refused; the attempt goes on under the same
    index, and neither a retry nor a loss is counted. A member of a cancelled flow is ended instead.
    One operator event records who did it. Raises `NotFound`, `ExecutionNotActive` unless a worker
    holds the execution, under a lease that may have expired, and `ValidationError` unless exactly
    one of the two times is given.
    """
    return only(
        await override_delays(
            conn,
            [execution_id],
            delay=delay,
            delay_until=delay_until,
            reason=reason,
            actor=actor,
            expected_last_mutation_at=expected_last_mutation_at,
            namespaces=namespaces,
        )
    )


async def override_delays(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    delay: float | timedelta | None = None,
    delay_until: datetime | None = None,
    reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> list[Delayed | EngineError]:
    """As `override_delay` for at most 1,000 executions, with what that raises as answers.

    The answers come in the order given. Raises `ValidationError` for arguments that cannot be.
    """
    check_actor(actor)
    if (delay is None) == (delay_until is None):
        raise invalid_input("delay_until", delay_until, "or delay, and only one, must be given")
    until_ms = (
        None if delay_until is None else epoch_ms(check_instant(delay_until, field="delay_until"))
    )
    wait_ms = None if delay is None else milliseconds(delay, field="delay")

    async def change(changing: list[LockedExecution]) -> dict[ExecutionId, Delayed]:
        until = await postpone(
            conn, [each.id for each in changing], until_ms=until_ms, wait_ms=wait_ms
        )
        await operator_events(
            conn,
            OperatorEventType.DELAYED,
            {
                each.id: override_facts(each, PublicState.DELAYED, delay_until_ms=until[each.id])
                for each in changing
            },
            actor=actor,
            reason=reason,
        )
        return {each.id: Delayed(execution_id=each.id) for each in changing}

    return await control(
        conn,
        executions,
        decide=override_refusal,
        change=change,
        seen_at=expected_last_mutation_at,
        namespaces=namespaces,
    )
