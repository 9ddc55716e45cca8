"""runnable → active: one named execution is leased, and its grants are deleted."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final, LiteralString
from uuid import UUID, uuid4

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.lifecycle.admit_by_key import admit_by_key
from flowfabric.engine.lifecycle.lease import LeaseHandle, LeaseHandleKind
from flowfabric.engine.lifecycle.log_unknown_budgets import log_unknown_budgets
from flowfabric.engine.lifecycle.sql.lease import (
    LEASE_TAKEN,
    LEASED_ROW,
    Claimed,
    LeasedRow,
    claimed,
)
from flowfabric.engine.lifecycle.sql.queue import queue_row
from flowfabric.errors import LeaseConflict, invalid_input
from flowfabric.ids import ExecutionId, check_worker_name
from flowfabric.instants import instant
from flowfabric.policy import milliseconds

CLAIM_BY_ID: Final[LiteralString] = (
    """
-- lifecycle.claim_by_id
WITH taken AS (       -- the execution, if it has not changed since the caller read it
    DELETE FROM ff.ready r USING ff.exec_core e
     WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
       AND e.lease_epoch = %(lease_epoch)s
       AND """
    + queue_row("e")
    + """
       AND (r.deadline_at_ms IS NULL OR r.deadline_at_ms > ff.now_ms())
 RETURNING r.partition_key, r.execution_id, %(reclaims)s::boolean AS reclaims,
           %(timeout_ms)s::bigint AS timeout_ms, ff.now_ms() AS now_ms, r.budget_ids
)"""
    + LEASE_TAKEN
    + f""", superseded AS (     -- the attempt that a reclaim replaces
    UPDATE ff.attempt a SET outcome = 'interrupted_reclaimed'
      FROM leased
     WHERE leased.reclaims
       AND (a.partition_key, a.execution_id, a.attempt_index)
         = (leased.partition_key, leased.execution_id, leased.attempt_index - 1)
), grants_deleted AS (
    DELETE FROM ff.claim_grant g USING leased
     WHERE (g.partition_key, g.execution_id) = (leased.partition_key, leased.execution_id)
)
SELECT{LEASED_ROW},
       leased.now_ms + %(ttl_ms)s::bigint AS lease_expires_at_ms,
       (SELECT ff.unknown_budgets(budget_ids) FROM taken) AS unknown_budgets
  FROM leased JOIN ff.route route USING (route_id)
"""
)


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which worker leases, and for how long; checked when it is made."""

    worker_id: str
    worker_instance_id: str
    lease_ttl: float | timedelta
    lease_id: UUID = msgspec.field(default_factory=uuid4)
    attempt_timeout: float | timedelta | None = None
    """How long the attempt may take; None: as the policy says."""

    def __post_init__(self) -> None:
        check_worker_name(self.worker_id, field="worker_id")
        check_worker_name(self.worker_instance_id, field="worker_instance_id")
        if self.ttl_ms < 1:
            raise invalid_input("lease_ttl", self.lease_ttl, "must be positive")
        if self.timeout_ms is not None and self.timeout_ms < 1:
            raise invalid_input("attempt_timeout", self.attempt_timeout, "must be positive")

    @property
    def ttl_ms(self) -> int:
        return milliseconds(self.lease_ttl, field="lease_ttl")

    @property
    def timeout_ms(self) -> int | None:
        if self.attempt_timeout is None:
            return None
        return milliseconds(self.attempt_timeout, field="attempt_timeout")


class ClaimedById(Claimed, frozen=True, kw_only=True):
    """A claimed execution with what its remote holder needs to know."""

    lease_expires_at: datetime
    lease_ttl: float
    worker_instance_id: str

    @property
    def handle(self) -> LeaseHandle:
        """What the holder passes with every call; `handle.encode()` gives the opaque bytes."""
        return self.lease.handle(
            lease_ttl=self.lease_ttl,
            lane_id=self.lane_id,
            worker_instance_id=self.worker_instance_id,
        )


class _Row(LeasedRow, frozen=True):
    lease_expires_at_ms: int
    unknown_budgets: list[UUID] | None


async def claim_by_id(
    conn: Connection,
    execution_id: ExecutionId,
    request: LeaseRequest,
    *,
    lease_epoch: int,
    kind: LeaseHandleKind,
    quota_key_id: int | None = None,
) -> ClaimedById:
    """Lease the execution as requested and delete all grants of it.

    Raises `LeaseConflict` if it is not claimable under `lease_epoch` any more, because it changed
    after the caller read it. The lock of `lock_for_claim` rules that out within one transaction.
    Raises `ExecutionNotLeaseable` if the limit of `quota_key_id` has no room.
    """
    await admit_by_key(conn, execution_id, quota_key_id)
    row = await fetch_maybe(
        conn,
        CLAIM_BY_ID,
        _Row,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        lease_epoch=lease_epoch,
        reclaims=kind is LeaseHandleKind.RECLAIMED,
        timeout_ms=request.timeout_ms,
        ttl_ms=request.ttl_ms,
        lease_id=request.lease_id,
        worker_id=request.worker_id,
        worker_instance_id=request.worker_instance_id,
    )
    if row is None:
        raise LeaseConflict(execution_id)
    if row.unknown_budgets:
        await log_unknown_budgets(conn, [execution_id], row.unknown_budgets)
    facts: dict[str, Any] = msgspec.structs.asdict(claimed(row, request.lease_id))
    facts["kind"] = kind
    return ClaimedById(
        **facts,
        lease_expires_at=instant(row.lease_expires_at_ms),
        lease_ttl=request.ttl_ms / 1000,
        worker_instance_id=request.worker_instance_id,
    )
