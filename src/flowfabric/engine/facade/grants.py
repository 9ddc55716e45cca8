"""Grants: a scheduler promises an execution to a worker elsewhere, which then claims it by name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from flowfabric.engine.facade.base import Base
from flowfabric.engine.lifecycle.claim_execution import claim_execution
from flowfabric.engine.lifecycle.claim_for_worker import claim_for_worker
from flowfabric.engine.lifecycle.claim_resumed_execution import claim_resumed_execution
from flowfabric.engine.lifecycle.grant import ClaimGrant, ReclaimGrant
from flowfabric.engine.lifecycle.issue_claim_grant import issue_claim_grant
from flowfabric.engine.lifecycle.issue_grant_and_claim import GrantedClaim, issue_grant_and_claim
from flowfabric.engine.lifecycle.issue_reclaim_grant import issue_reclaim_grant
from flowfabric.engine.lifecycle.mark_lease_expired_if_due import (
    AlreadySatisfied,
    MarkedExpired,
    mark_lease_expired_if_due,
)
from flowfabric.engine.lifecycle.reclaim_execution import GrantNotFound, reclaim_execution
from flowfabric.engine.lifecycle.reclaimable import NotReclaimable, ReclaimCapExceeded
from flowfabric.engine.lifecycle.take import ClaimedByName
from flowfabric.engine.lifecycle.verify_grant import VerifiedGrant, verify_grant
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId


class Grants(Base):
    """Promises, and the claims that redeem them."""

    async def claim_for_worker(
        self,
        *,
        lane_id: str,
        worker_id: str,
        worker_instance_id: str,
        worker_capabilities: Sequence[str] = (),
        grant_ttl_ms: int = 5000,
        namespace: str = "default",
    ) -> ClaimGrant | None:
        return await self._transact(
            "claim_for_worker",
            lambda conn: claim_for_worker(
                conn,
                lane_id=lane_id,
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                worker_capabilities=worker_capabilities,
                grant_ttl_ms=grant_ttl_ms,
                namespace=namespace,
            ),
        )

    async def issue_claim_grant(
        self,
        execution_id: ExecutionId,
        *,
        lane_id: str,
        worker_id: str,
        worker_instance_id: str,
        worker_capabilities: Sequence[str] = (),
        grant_ttl_ms: int = 5000,
        capability_hash: str | None = None,
        route_snapshot_json: str | None = None,
        admission_summary: str | None = None,
    ) -> ClaimGrant:
        answer = await self._transact(
            "issue_claim_grant",
            lambda conn: issue_claim_grant(
                conn,
                execution_id,
                lane_id=lane_id,
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                worker_capabilities=worker_capabilities,
                grant_ttl_ms=grant_ttl_ms,
                capability_hash=capability_hash,
                route_snapshot_json=route_snapshot_json,
                admission_summary=admission_summary,
            ),
        )
        if isinstance(answer, ValidationError):  # the mismatch is recorded, and committed by now
            raise answer
        return answer

    async def verify_grant(self, grant: ClaimGrant | ReclaimGrant) -> VerifiedGrant:
        return await self._run("verify_grant", lambda conn: verify_grant(conn, grant))

    async def claim_execution(
        self,
        execution_id: ExecutionId,
        *,
        worker_id: str,
        worker_instance_id: str,
        expected_attempt_index: int,
        lease_ttl: float | timedelta,
        lease_id: UUID | None = None,
        attempt_timeout: float | timedelta | None = None,
    ) -> ClaimedByName:
        return await self._transact(
            "claim_execution",
            lambda conn: claim_execution(
                conn,
                execution_id,
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                expected_attempt_index=expected_attempt_index,
                lease_ttl=lease_ttl,
                lease_id=lease_id,
                attempt_timeout=attempt_timeout,
            ),
        )

    async def claim_resumed_execution(
        self,
        execution_id: ExecutionId,
        *,
        worker_id: str,
        worker_instance_id: str,
        lease_ttl: float | timedelta,
        lease_id: UUID | None = None,
        attempt_timeout: float | timedelta | None = None,
    ) -> ClaimedByName:
        return await self._transact(
            "claim_resumed_execution",
            lambda conn: claim_resumed_execution(
                conn,
                execution_id,
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                lease_ttl=lease_ttl,
                lease_id=lease_id,
                attempt_timeout=attempt_timeout,
            ),
        )

    async def issue_grant_and_claim(
        self, execution_id: ExecutionId, *, lane_id: str, lease_duration_ms: int
    ) -> GrantedClaim:
        return await self._transact(
            "issue_grant_and_claim",
            lambda conn: issue_grant_and_claim(
                conn, execution_id, lane_id=lane_id, lease_duration_ms=lease_duration_ms
            ),
        )

    async def issue_reclaim_grant(
        self,
        execution_id: ExecutionId,
        *,
        lane_id: str,
        worker_id: str,
        worker_instance_id: str,
        worker_capabilities: Sequence[str] = (),
        grant_ttl_ms: int = 5000,
        capability_hash: str | None = None,
        route_snapshot_json: str | None = None,
        admission_summary: str | None = None,
    ) -> ReclaimGrant | ReclaimCapExceeded | NotReclaimable:
        return await self._control(
            "issue_reclaim_grant",
            lambda conn: issue_reclaim_grant(
                conn,
                execution_id,
                lane_id=lane_id,
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                worker_capabilities=worker_capabilities,
                grant_ttl_ms=grant_ttl_ms,
                capability_hash=capability_hash,
                route_snapshot_json=route_snapshot_json,
                admission_summary=admission_summary,
            ),
        )

    async def reclaim_execution(
        self,
        execution_id: ExecutionId,
        *,
        worker_id: str,
        worker_instance_id: str,
        lease_ttl: float | timedelta,
        lease_id: UUID | None = None,
        attempt_timeout: float | timedelta | None = None,
        max_reclaim_count: int | None = None,
    ) -> ClaimedByName | GrantNotFound | NotReclaimable | ReclaimCapExceeded:
        return await self._control(
            "reclaim_execution",
            lambda conn: reclaim_execution(
                conn,
                execution_id,
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                lease_ttl=lease_ttl,
                lease_id=lease_id,
                attempt_timeout=attempt_timeout,
                max_reclaim_count=max_reclaim_count,
            ),
        )

    async def mark_lease_expired_if_due(
        self, execution_id: ExecutionId
    ) -> MarkedExpired | AlreadySatisfied:
        return await self._run(
            "mark_lease_expired_if_due",
            lambda conn: mark_lease_expired_if_due(conn, execution_id),
        )
