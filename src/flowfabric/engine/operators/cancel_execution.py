"""any non-terminal → terminal(cancelled): an operator or another outsider ends executions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.cancel import Cancelled
from flowfabric.engine.lifecycle.lock_executions import LockedExecution
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_events
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.engine.operators.control import control, only
from flowfabric.errors import EngineError, StaleLease, ValidationError, invalid_input
from flowfabric.ids import ExecutionId, check_text
from flowfabric.states import LifecyclePhase, OperatorEventType, PublicState, TerminalOutcome

OPERATOR: Final = "operator_override"


class _Source(msgspec.Struct, frozen=True):
    """Who cancels, and the lease that the source shows; None is not compared."""

    name: str
    lease_epoch: int | None
    lease_id: UUID | None
    attempt_id: UUID | None

    def decide(self, seen: LockedExecution) -> Cancelled | EngineError | None:
        if seen.lifecycle_phase == LifecyclePhase.TERMINAL:
            if seen.terminal_outcome == TerminalOutcome.CANCELLED:
                return Cancelled(execution_id=seen.id, repeated=True)
            return ValidationError(
                "invalid_input",
                f"execution {seen.id} already terminal in state {seen.public_state}",
            )
        if self.name == OPERATOR or seen.lifecycle_phase != LifecyclePhase.ACTIVE:
            return None
        if self.lease_epoch is None:
            return invalid_input("lease_epoch", None, f"must be given by source {self.name!r}")
        if not self._holds(seen):
            return StaleLease(seen.id, held=self.lease_epoch, current=seen.lease_epoch)
        return None

    def _holds(self, seen: LockedExecution) -> bool:
        return (
            self.lease_epoch == seen.lease_epoch
            and self.lease_id in (None, seen.lease_id)
            and self.attempt_id in (None, seen.attempt_id)
        )


async def cancel_execution(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    reason: str,
    source: str = OPERATOR,
    actor: str = DEFAULT_ACTOR,
    lease_epoch: int | None = None,
    lease_id: UUID | None = None,
    attempt_id: UUID | None = None,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> Cancelled:
    """The execution has ended as cancelled, in whatever state it was; needs a transaction.

    Cancelled before: the same answer and nothing written. Any source but an operator must show
    the epoch of a live lease, and whatever else it names of the lease must fit. Raises `NotFound`,
    `StaleLease`, and `ValidationError(invalid_input)` when the execution ended otherwise.
    """
    return only(
        await cancel_executions(
            conn,
            [execution_id],
            reason=reason,
            source=source,
            actor=actor,
            lease_epoch=lease_epoch,
            lease_id=lease_id,
            attempt_id=attempt_id,
            expected_last_mutation_at=expected_last_mutation_at,
            namespaces=namespaces,
        )
    )


async def cancel_executions(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    reason: str,
    source: str = OPERATOR,
    actor: str = DEFAULT_ACTOR,
    lease_epoch: int | None = None,
    lease_id: UUID | None = None,
    attempt_id: UUID | None = None,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> list[Cancelled | EngineError]:
    """As `cancel_execution` for at most 1,000 executions, with what that raises as answers.

    The answers come in the order given. Raises `ValidationError` for arguments that cannot be.
    """
    check_text(source, field="source")
    check_actor(actor)

    async def change(changing: list[LockedExecution]) -> dict[ExecutionId, Cancelled]:
        cancelled = [each.id for each in changing]
        await terminalize(
            conn, cancelled, outcome=TerminalOutcome.CANCELLED, reason=reason, by=source
        )
        if source == OPERATOR:
            await operator_events(
                conn,
                OperatorEventType.CANCELLED,
                {each.id: _facts(each) for each in changing},
                actor=actor,
                reason=reason,
            )
        return {each: Cancelled(execution_id=each) for each in cancelled}

    by = _Source(source, lease_epoch, lease_id, attempt_id)
    return await control(
        conn,
        executions,
        decide=by.decide,
        change=change,
        seen_at=expected_last_mutation_at,
        namespaces=namespaces,
    )


def _facts(seen: LockedExecution) -> dict[str, str]:
    return {"old_public_state": seen.public_state, "new_public_state": PublicState.CANCELLED.value}
