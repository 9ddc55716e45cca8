"""any non-terminal → terminal(cancelled): somebody outside ends the execution."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.cancel import Cancelled
from flowfabric.engine.lifecycle.operator_event import SOMEBODY, check_actor, operator_event
from flowfabric.engine.lifecycle.standing_of import Standing, standing_of
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.errors import StaleLease, ValidationError, invalid_input
from flowfabric.ids import ExecutionId, attempt_id, check_text
from flowfabric.states import LifecyclePhase, OperatorEventType, PublicState, TerminalOutcome

OPERATOR: Final = "operator_override"


async def cancel_execution(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    reason: str,
    source: str = OPERATOR,
    actor: str = SOMEBODY,
    lease_epoch: int | None = None,
    lease_id: UUID | None = None,
    attempt: UUID | None = None,
) -> Cancelled:
    """End the execution as cancelled, wherever it stands; runs in the caller's transaction.

    Cancelled before: the same answer and nothing written. Any source but an operator must show
    the epoch of a live lease, and whatever else it names of it must fit. Raises `NotFound`,
    `StaleLease`, and `ValidationError(invalid_input)` when it ended otherwise.
    """
    check_text(source, field="source")
    check_actor(actor)
    standing = await standing_of(conn, execution_id)
    if standing.lifecycle_phase == LifecyclePhase.TERMINAL:
        if standing.terminal_outcome == TerminalOutcome.CANCELLED:
            return Cancelled(execution_id=execution_id, repeated=True)
        raise ValidationError(
            "invalid_input",
            f"execution {execution_id} already terminal in state {standing.public_state}",
        )
    if source != OPERATOR and standing.lifecycle_phase == LifecyclePhase.ACTIVE:
        if lease_epoch is None:
            raise invalid_input("lease_epoch", lease_epoch, f"must be given by source {source!r}")
        if not _holds(execution_id, standing, lease_epoch, lease_id, attempt):
            raise StaleLease(execution_id, held=lease_epoch, current=standing.lease_epoch)
    await terminalize(
        conn, [execution_id], outcome=TerminalOutcome.CANCELLED, reason=reason, by=source
    )
    if source == OPERATOR:
        await operator_event(
            conn,
            OperatorEventType.CANCELLED,
            actor=actor,
            reason=reason,
            execution_id=execution_id,
            old_public_state=standing.public_state,
            new_public_state=PublicState.CANCELLED,
        )
    return Cancelled(execution_id=execution_id)


def _holds(
    execution_id: ExecutionId,
    standing: Standing,
    lease_epoch: int,
    lease_id: UUID | None,
    attempt: UUID | None,
) -> bool:
    current = attempt_id(execution_id, standing.attempt_index)
    return (
        lease_epoch == standing.lease_epoch
        and lease_id in (None, standing.lease_id)
        and attempt in (None, current)
    )
