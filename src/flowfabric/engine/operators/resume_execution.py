"""suspended → runnable: an operator lets suspended executions go on, whatever they waited for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.lock_executions import LockedExecution
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_events
from flowfabric.engine.lifecycle.resume import Resume, resume
from flowfabric.engine.operators.control import control, only
from flowfabric.errors import EngineError, ExecutionNotSuspended, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.policy import milliseconds
from flowfabric.states import LifecyclePhase, OperatorEventType, PublicState


class ResumeTrigger(StrEnum):
    """In whose place an operator resumes an execution."""

    SIGNAL = "signal"
    OPERATOR = "operator"
    AUTO_RESUME = "auto_resume"


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """The execution can be claimed: now (`resumable`) or after a delay (`delayed`)."""

    execution_id: ExecutionId
    public_state: PublicState


async def resume_execution(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    trigger_type: str = ResumeTrigger.OPERATOR,
    delay: float | timedelta = 0,
    actor: str = DEFAULT_ACTOR,
    reason: str | None = None,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> Resumed:
    """The suspended attempt goes on with the next claim, at the earliest after `delay`.

    Its suspension is closed, and so are its waitpoints, unless a handler may wait for them again.
    `trigger_type` (`signal`, `operator`, `auto_resume`) is a fact of the operator event. Needs a
    transaction. Raises `NotFound`, and `ExecutionNotSuspended`.
    """
    return only(
        await resume_executions(
            conn,
            [execution_id],
            trigger_type=trigger_type,
            delay=delay,
            actor=actor,
            reason=reason,
            expected_last_mutation_at=expected_last_mutation_at,
            namespaces=namespaces,
        )
    )


async def resume_executions(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    trigger_type: str = ResumeTrigger.OPERATOR,
    delay: float | timedelta = 0,
    actor: str = DEFAULT_ACTOR,
    reason: str | None = None,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> list[Resumed | EngineError]:
    """As `resume_execution` for at most 1,000 executions, with what that raises as answers.

    The answers come in the order given. Raises `ValidationError` for arguments that cannot be.
    """
    check_actor(actor)
    if trigger_type not in list(ResumeTrigger):
        words = ", ".join(ResumeTrigger)
        raise invalid_input("trigger_type", trigger_type, f"must be one of {words}")
    if milliseconds(delay, field="delay") < 0:
        raise invalid_input("delay", delay, "must not be negative")

    async def change(changing: list[LockedExecution]) -> dict[ExecutionId, Resumed]:
        resumes = [Resume(execution_id=each.id, delay=delay) for each in changing]
        states = await resume(conn, resumes, records_event=False)
        await operator_events(
            conn,
            OperatorEventType.RESUMED,
            {
                each.id: {
                    "old_public_state": each.public_state,
                    "new_public_state": states[each.id].value,
                    "old_blocking_reason": each.blocking_reason,
                    "trigger_type": str(trigger_type),
                }
                for each in changing
            },
            actor=actor,
            reason=reason,
        )
        return {
            each: Resumed(execution_id=each, public_state=state) for each, state in states.items()
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
    if seen.lifecycle_phase == LifecyclePhase.SUSPENDED:
        return None
    return ExecutionNotSuspended(seen.id, seen.public_state)
