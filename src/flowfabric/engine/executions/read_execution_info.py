"""One execution with its state vector."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.read_execution import read_execution
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import (
    AttemptState,
    BlockingReason,
    EligibilityState,
    LifecyclePhase,
    OwnershipState,
    PublicState,
    TerminalOutcome,
)


class StateVector(msgspec.Struct, frozen=True, kw_only=True):
    """Every dimension of an execution's state."""

    lifecycle_phase: LifecyclePhase
    ownership_state: OwnershipState
    eligibility_state: EligibilityState
    blocking_reason: BlockingReason
    terminal_outcome: TerminalOutcome
    attempt_state: AttemptState
    public_state: PublicState


class ExecutionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The whole state vector and the times; `started_at` is that of the first claim."""

    execution_id: ExecutionId
    namespace: str
    lane_id: str
    priority: int
    execution_kind: str
    state_vector: StateVector
    public_state: PublicState
    created_at: datetime
    current_attempt_index: int
    blocking_detail: str
    started_at: datetime | None
    completed_at: datetime | None
    flow_id: UUID | None


async def read_execution_info(
    conn: Connection, execution_id: ExecutionId, *, namespaces: Sequence[str] | None = None
) -> ExecutionInfo | None:
    """The execution with its whole state vector.

    None if it does not exist, or is in none of the namespaces.
    """
    row = await read_execution(conn, execution_id, namespaces=namespaces)
    if row is None:
        return None
    return ExecutionInfo(
        execution_id=execution_id,
        namespace=row.namespace,
        lane_id=row.lane_id,
        priority=row.priority,
        execution_kind=row.execution_kind,
        state_vector=StateVector(
            lifecycle_phase=LifecyclePhase(row.lifecycle_phase),
            ownership_state=OwnershipState(row.ownership_state),
            eligibility_state=EligibilityState(row.eligibility_state),
            blocking_reason=BlockingReason(row.blocking_reason),
            terminal_outcome=TerminalOutcome(row.terminal_outcome),
            attempt_state=AttemptState(row.attempt_state),
            public_state=PublicState(row.public_state),
        ),
        public_state=PublicState(row.public_state),
        created_at=instant(row.created_at_ms),
        current_attempt_index=row.attempt_index,
        blocking_detail=row.blocking_detail or "",
        started_at=instant(row.started_at_ms),
        completed_at=instant(row.terminal_at_ms),
        flow_id=row.flow_id,
    )
