"""One execution in full."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.read_execution import ExecutionRow, read_execution
from flowfabric.ids import ExecutionId, attempt_id
from flowfabric.instants import instant
from flowfabric.states import (
    AttemptState,
    BlockingReason,
    PublicState,
    SuspensionReason,
    TimeoutBehavior,
)
from flowfabric.tags import read_tags


class CurrentAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt that runs, or the last one that ran."""

    attempt_id: UUID
    attempt_index: int


class CurrentLease(msgspec.Struct, frozen=True, kw_only=True):
    """The lease of the execution: its holder, and when it expires."""

    lease_id: UUID
    lease_epoch: int
    worker_id: str
    worker_instance_id: str
    expires_at: datetime
    attempt_index: int


class CurrentSuspension(msgspec.Struct, frozen=True, kw_only=True):
    """The open suspension of the execution: why, since when, and what its timeout does."""

    suspension_id: UUID
    reason: SuspensionReason
    suspended_at: datetime
    timeout_at: datetime | None
    timeout_behavior: TimeoutBehavior
    awaits_signals: list[str]
    """Names of signals, any of which resumes the execution."""


class ExecutionBody(msgspec.Struct, frozen=True, kw_only=True):
    """What went into an execution and what came out of it; `read_untyped` decodes the bytes."""

    payload: bytes
    payload_encoding: str | None
    result: bytes | None
    """None unless the execution has succeeded."""
    result_encoding: str | None
    traceback: str | None
    """Of the last attempt that ended, if it failed with one."""


class ExecutionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One execution as it was read."""

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
    current_suspension: CurrentSuspension | None
    total_attempt_count: int
    retry_count: int
    lease_reclaim_count: int
    infra_release_count: int
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
    body: ExecutionBody | None = None
    """Only on request."""


async def describe_execution(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    with_body: bool = False,
    namespaces: Sequence[str] | None = None,
) -> ExecutionSnapshot | None:
    """The execution, or None if it does not exist, or is in none of the namespaces.

    With `with_body` also its payload, its result and the traceback of its last attempt.
    """
    row = await read_execution(conn, execution_id, with_body=with_body, namespaces=namespaces)
    if row is None:
        return None
    tags = read_tags(row.tags)
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
        current_suspension=_current_suspension(row),
        total_attempt_count=row.total_attempt_count,
        retry_count=row.retry_count,
        lease_reclaim_count=row.lease_reclaim_count,
        infra_release_count=row.infra_release_count,
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
        body=_body(row),
    )


def _body(row: ExecutionRow) -> ExecutionBody | None:
    if row.payload is None:
        return None
    return ExecutionBody(
        payload=row.payload,
        payload_encoding=row.payload_encoding,
        result=row.result,
        result_encoding=row.result_encoding,
        traceback=row.failure_detail,
    )


def _current_attempt(row: ExecutionRow, execution_id: ExecutionId) -> CurrentAttempt | None:
    if row.total_attempt_count == 0 or row.attempt_state == AttemptState.PENDING_RETRY_ATTEMPT:
        return None
    return CurrentAttempt(
        attempt_id=attempt_id(execution_id, row.attempt_index), attempt_index=row.attempt_index
    )


def _current_lease(row: ExecutionRow) -> CurrentLease | None:
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


def _current_suspension(row: ExecutionRow) -> CurrentSuspension | None:
    if row.suspension_id is None:
        return None
    return CurrentSuspension(
        suspension_id=row.suspension_id,
        reason=SuspensionReason(row.reason_code),
        suspended_at=instant(row.suspended_at_ms),
        timeout_at=instant(row.timeout_at_ms),
        timeout_behavior=TimeoutBehavior(row.timeout_behavior),
        awaits_signals=row.awaits_signals,
    )
