"""any non-terminal → terminal(cancelled): somebody outside ends the execution."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.lifecycle.cancel import Cancelled
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.errors import NotFound, StaleLease, ValidationError, invalid_input
from flowfabric.ids import ExecutionId, check_text
from flowfabric.states import LifecyclePhase, TerminalOutcome

OPERATOR: Final = "operator_override"

STANDING_OF: Final[LiteralString] = """
-- lifecycle.cancel_execution: the row as it stands
SELECT lifecycle_phase, terminal_outcome, public_state, lease_epoch, lease_id
  FROM ff.exec_core
 WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
   FOR NO KEY UPDATE
"""


class _Standing(msgspec.Struct, frozen=True):
    lifecycle_phase: str
    terminal_outcome: str
    public_state: str
    lease_epoch: int
    lease_id: UUID | None


async def cancel_execution(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    reason: str,
    source: str = OPERATOR,
    lease_epoch: int | None = None,
    lease_id: UUID | None = None,
) -> Cancelled:
    """End the execution as cancelled, wherever it stands; runs in the caller's transaction.

    Cancelled before: the same answer and nothing written. Any source but an operator must show
    the epoch of a live lease. Raises `NotFound`, `StaleLease`, and
    `ValidationError(invalid_input)` when it ended otherwise.
    """
    check_text(source, field="source")
    standing = await fetch_maybe(
        conn,
        STANDING_OF,
        _Standing,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )
    if standing is None:
        raise NotFound("execution", execution_id)
    if standing.lifecycle_phase == LifecyclePhase.TERMINAL:
        if standing.terminal_outcome == TerminalOutcome.CANCELLED:
            return Cancelled(execution_id=execution_id, repeated=True)
        raise ValidationError(
            "invalid_input", f"execution {execution_id} already ended as {standing.public_state}"
        )
    if source != OPERATOR and standing.lifecycle_phase == LifecyclePhase.ACTIVE:
        if lease_epoch is None:
            raise invalid_input("lease_epoch", lease_epoch, f"must be given by source {source!r}")
        if lease_epoch != standing.lease_epoch or lease_id not in (None, standing.lease_id):
            raise StaleLease(execution_id, held=lease_epoch, current=standing.lease_epoch)
    await terminalize(
        conn, [execution_id], outcome=TerminalOutcome.CANCELLED, reason=reason, by=source
    )
    return Cancelled(execution_id=execution_id)
