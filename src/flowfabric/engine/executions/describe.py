"""What one execution is and where it stands."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.ids import ExecutionId, attempt_id
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

READ: Final[LiteralString] = """
-- executions.describe
SELECT e.flow_id, r.lane_id, r.namespace, r.execution_kind, r.required_capabilities, e.priority,
       e.lifecycle_phase, e.ownership_state, e.eligibility_state, e.blocking_reason,
       e.terminal_outcome, e.attempt_state, e.public_state, e.blocking_detail, e.attempt_index,
       e.total_attempt_count, e.retry_count, e.lease_reclaim_count, e.replay_count, e.lease_epoch,
       e.lease_id, e.worker_id, e.worker_instance_id, e.lease_expires_at_ms, e.created_at_ms,
       e.started_at_ms, e.terminal_at_ms, e.delay_until_ms, e.deadline_at_ms,
       e.last_mutation_at_ms, e.progress_pct, e.progress_message, e.failure_reason,
       e.failure_category, e.cancellation_reason, e.cancelled_by, e.tags, b.idempotency_key,
       b.creator_identity
  FROM ff.exec_core e
  JOIN ff.exec_body b USING (partition_key, execution_id)
  JOIN ff.route r USING (route_id)
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""

STATE: Final[LiteralString] = """
-- executions.read_execution_state
SELECT public_state FROM ff.exec_core
 WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
"""


class CurrentAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt that runs, or the last one that did."""

    attempt_id: UUID
    attempt_index: int


class CurrentLease(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds the execution, and until when."""

    lease_id: UUID
    lease_epoch: int
    worker_id: str
    worker_instance_id: str
    expires_at: datetime
    attempt_index: int


class ExecutionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One execution as it stood at the moment of reading."""

    execution_id: ExecutionId
    flow_id: UUID | None
    namespace: str
    lane_id: str
    execution_kind: str
    required_capabilities: list[str]
    priority: int
    public_state: PublicState
    blocking_reason: BlockingReason | None
    blocking_detail: str | None
    current_attempt: CurrentAttempt | None
    current_lease: CurrentLease | None
    total_attempt_count: int
    retry_count: int
    lease_reclaim_count: int
    created_at: datetime
    started_at: datetime | None
    terminal_at: datetime | None
    delay_until: datetime | None
    deadline_at: datetime | None
    last_mutation_at: datetime
    progress_pct: int | None
    progress_message: str | None
    failure_reason: str | None
    failure_category: str | None
    cancellation_reason: str | None
    cancelled_by: str | None
    idempotency_key: str | None
    creator_identity: str | None
    tags: dict[str, str]


class StateVector(msgspec.Struct, frozen=True, kw_only=True):
    """Every dimension of an execution's state."""

    lifecycle_phase: LifecyclePhase
    ownership_state: OwnershipState
    eligibility_state: EligibilityState
    blocking_reason: BlockingReason
    terminal_outcome: TerminalOutcome
    attempt_state: AttemptState
    public_state: PublicState


class ExecutionInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The whole state vector and the dates; optional times are omitted, not null."""

    execution_id: ExecutionId
    namespace: str
    lane_id: str
    priority: int
    execution_kind: str
    state_vector: StateVector
    public_state: PublicState
    created_at: str
    current_attempt_index: int
    blocking_detail: str
    started_at: str | None = None
    completed_at: str | None = None
    flow_id: UUID | None = None


class _Row(msgspec.Struct, frozen=True):
    flow_id: UUID | None
    lane_id: str
    namespace: str
    execution_kind: str
    required_capabilities: list[str]
    priority: int
    lifecycle_phase: str
    ownership_state: str
    eligibility_state: str
    blocking_reason: str
    terminal_outcome: str
    attempt_state: str
    public_state: str
    blocking_detail: str | None
    attempt_index: int
    total_attempt_count: int
    retry_count: int
    lease_reclaim_count: int
    replay_count: int
    lease_epoch: int
    lease_id: UUID | None
    worker_id: str | None
    worker_instance_id: str | None
    lease_expires_at_ms: int | None
    created_at_ms: int
    started_at_ms: int | None
    terminal_at_ms: int | None
    delay_until_ms: int | None
    deadline_at_ms: int | None
    last_mutation_at_ms: int
    progress_pct: int | None
    progress_message: str | None
    failure_reason: str | None
    failure_category: str | None
    cancellation_reason: str | None
    cancelled_by: str | None
    tags: str
    idempotency_key: str | None
    creator_identity: str | None


async def describe_execution(
    conn: Connection, execution_id: ExecutionId
) -> ExecutionSnapshot | None:
    """The execution as it stands, or None."""
    row = await _read(conn, execution_id)
    if row is None:
        return None
    tags = msgspec.json.decode(row.tags, type=dict[str, str])
    blocked = BlockingReason(row.blocking_reason)
    return ExecutionSnapshot(
        execution_id=execution_id,
        flow_id=row.flow_id,
        namespace=row.namespace,
        lane_id=row.lane_id,
        execution_kind=row.execution_kind,
        required_capabilities=row.required_capabilities,
        priority=row.priority,
        public_state=PublicState(row.public_state),
        blocking_reason=None if blocked is BlockingReason.NONE else blocked,
        blocking_detail=row.blocking_detail,
        current_attempt=_current_attempt(row, execution_id),
        current_lease=_current_lease(row),
        total_attempt_count=row.total_attempt_count,
        retry_count=row.retry_count,
        lease_reclaim_count=row.lease_reclaim_count,
        created_at=instant(row.created_at_ms),
        started_at=instant(row.started_at_ms),
        terminal_at=instant(row.terminal_at_ms),
        delay_until=instant(row.delay_until_ms),
        deadline_at=instant(row.deadline_at_ms),
        last_mutation_at=instant(row.last_mutation_at_ms),
        progress_pct=row.progress_pct,
        progress_message=row.progress_message,
        failure_reason=row.failure_reason,
        failure_category=row.failure_category,
        cancellation_reason=row.cancellation_reason,
        cancelled_by=row.cancelled_by,
        idempotency_key=row.idempotency_key,
        creator_identity=row.creator_identity,
        tags=dict(sorted(tags.items())),
    )


async def read_execution_info(conn: Connection, execution_id: ExecutionId) -> ExecutionInfo | None:
    """The execution's whole state vector, or None."""
    row = await _read(conn, execution_id)
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
        created_at=str(row.created_at_ms),
        current_attempt_index=row.attempt_index,
        blocking_detail=row.blocking_detail or "",
        started_at=None if row.started_at_ms is None else str(row.started_at_ms),
        completed_at=None if row.terminal_at_ms is None else str(row.terminal_at_ms),
        flow_id=row.flow_id,
    )


class _State(msgspec.Struct, frozen=True):
    public_state: str


async def read_execution_state(conn: Connection, execution_id: ExecutionId) -> PublicState | None:
    """The public state, or None where there is no such execution."""
    row = await fetch_maybe(
        conn,
        STATE,
        _State,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )
    return None if row is None else PublicState(row.public_state)


async def _read(conn: Connection, execution_id: ExecutionId) -> _Row | None:
    return await fetch_maybe(
        conn,
        READ,
        _Row,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )


def _current_attempt(row: _Row, execution_id: ExecutionId) -> CurrentAttempt | None:
    if row.total_attempt_count == 0 or row.attempt_state == AttemptState.PENDING_RETRY_ATTEMPT:
        return None
    return CurrentAttempt(
        attempt_id=attempt_id(execution_id, row.attempt_index), attempt_index=row.attempt_index
    )


def _current_lease(row: _Row) -> CurrentLease | None:
    if (
        row.lease_id is None
        or row.worker_id is None
        or row.worker_instance_id is None
        or row.lease_expires_at_ms is None
    ):
        return None
    return CurrentLease(
        lease_id=row.lease_id,
        lease_epoch=row.lease_epoch,
        worker_id=row.worker_id,
        worker_instance_id=row.worker_instance_id,
        expires_at=instant(row.lease_expires_at_ms),
        attempt_index=row.attempt_index,
    )
