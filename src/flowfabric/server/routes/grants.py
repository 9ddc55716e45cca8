"""Grants: a scheduler reserves an execution for a worker, which claims it by its id."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import msgspec

from flowfabric.api.leaves import parse_execution_id
from flowfabric.engine.executions.list_expired_leases import ExpiredLease, ExpiredLeaseCursor
from flowfabric.engine.grants.grant import ClaimGrant, ReclaimGrant
from flowfabric.engine.grants.reclaim_execution import GrantNotFound
from flowfabric.engine.grants.reclaimable import NotReclaimable, ReclaimCapExceeded
from flowfabric.engine.grants.verify_grant import VerifiedGrant
from flowfabric.engine.lifecycle.claim_by_id import ClaimedById
from flowfabric.ids import ExecutionId
from flowfabric.instants import epoch_ms, instant
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.pages import NamespacePageQuery, check_limit, page, page_of
from flowfabric.server.problems import invalid
from flowfabric.server.routes.execution_reads import X
from flowfabric.server.table import CONTROL, NOTHING, Route, route
from flowfabric.states import Scope


class GrantRequest(msgspec.Struct, frozen=True, kw_only=True):
    """For whom; with an id for that execution, else for the best one that the worker can run."""

    lane_id: str
    worker_id: str
    worker_instance_id: str
    execution_id: ExecutionId | None = None
    worker_capabilities: list[str] = []
    grant_ttl: float = 5.0
    namespace: str | None = None


class VerifyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A grant, as it was issued."""

    grant: ClaimGrant | ReclaimGrant


class ClaimByIdRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The worker that has a grant, and the attempt that it expects."""

    worker_id: str
    worker_instance_id: str
    expected_attempt_index: int
    lease_ttl: float = 30.0
    lease_id: UUID | None = None
    attempt_timeout: float | None = None


class ClaimResumedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The worker that goes on with an attempt."""

    worker_id: str
    worker_instance_id: str
    lease_ttl: float = 30.0
    lease_id: UUID | None = None
    attempt_timeout: float | None = None


class ReclaimRequest(ClaimResumedRequest, frozen=True, kw_only=True):
    """The worker that reclaims, and how often that may happen."""

    max_reclaim_count: int | None = None


ReclaimGrantAnswer = ReclaimGrant | ReclaimCapExceeded | NotReclaimable
ReclaimAnswer = ClaimedById | GrantNotFound | NotReclaimable | ReclaimCapExceeded


async def issue_claim_grant(call: ApiCall, body: GrantRequest) -> Reply:
    """Reserve an execution for a worker; 204 if there is none that it can run."""
    common: dict[str, Any] = {
        "lane_id": body.lane_id,
        "worker_id": body.worker_id,
        "worker_instance_id": body.worker_instance_id,
        "worker_capabilities": body.worker_capabilities,
        "grant_ttl": body.grant_ttl,
    }
    if body.execution_id is not None:
        await call.check_executions([body.execution_id])
        return Reply(value=await call.engine.issue_claim_grant(body.execution_id, **common))
    found = await call.engine.claim_for_worker(**common, namespace=call.namespace(body.namespace))
    return Reply(status=204) if found is None else Reply(value=found)


async def verify_grant(call: ApiCall, body: VerifyRequest) -> VerifiedGrant:
    """Is the grant valid? Answers for whom."""
    await call.check_executions([body.grant.execution_id])
    return await call.engine.verify_grant(body.grant)


async def claim_execution(call: ApiCall, body: ClaimByIdRequest) -> ClaimedById:
    """Claim the execution for which the worker has a grant."""
    return await call.engine.claim_execution(
        await call.execution_id(), **msgspec.structs.asdict(body)
    )


async def claim_resumed_execution(call: ApiCall, body: ClaimResumedRequest) -> ClaimedById:
    """Claim an execution whose attempt goes on."""
    return await call.engine.claim_resumed_execution(
        await call.execution_id(), **msgspec.structs.asdict(body)
    )


async def issue_reclaim_grant(call: ApiCall, body: GrantRequest) -> ReclaimGrantAnswer:
    """Reserve an execution whose worker was lost."""
    return await call.engine.issue_reclaim_grant(
        await call.execution_id(),
        lane_id=body.lane_id,
        worker_id=body.worker_id,
        worker_instance_id=body.worker_instance_id,
        worker_capabilities=body.worker_capabilities,
        grant_ttl=body.grant_ttl,
    )


async def reclaim_execution(call: ApiCall, body: ReclaimRequest) -> ReclaimAnswer:
    """Claim an execution whose worker was lost."""
    return await call.engine.reclaim_execution(
        await call.execution_id(), **msgspec.structs.asdict(body)
    )


async def list_expired_leases(call: ApiCall, query: NamespacePageQuery) -> Reply:
    """Leases that have expired and were not reclaimed."""
    found = await call.engine.list_expired_leases(
        after=_cursor(query.cursor),
        limit=check_limit(query.limit),
        namespace=call.only(query.namespace),
    )
    after = found.next_cursor
    cursor = None if after is None else f"{epoch_ms(after.expires_at)}~{after.execution_id}"
    return page(call, ExpiredLease, found.leases, cursor, query)


def _cursor(text: str | None) -> ExpiredLeaseCursor | None:
    if text is None:
        return None
    at, _, execution_id = text.partition("~")
    if not (at.isascii() and at.isdigit() and len(at) <= 15):
        raise invalid("cursor", "is not a cursor of this list")
    return ExpiredLeaseCursor(
        expires_at=instant(int(at)), execution_id=parse_execution_id(execution_id)
    )


def _work(path: str, handler: Any, body: Any, answers: Any) -> Route:
    return route("POST", path, handler, scope=Scope.WORK, limit=CONTROL, body=body, answers=answers)


ROUTES: Final[tuple[Route, ...]] = (
    _work("/v1/grants", issue_claim_grant, GrantRequest, {200: ClaimGrant, 204: NOTHING}),
    _work("/v1/grants/verify", verify_grant, VerifyRequest, {200: VerifiedGrant}),
    _work(X + "/claim", claim_execution, ClaimByIdRequest, {200: ClaimedById}),
    _work(X + "/claim-resumed", claim_resumed_execution, ClaimResumedRequest, {200: ClaimedById}),
    _work(X + "/reclaim-grant", issue_reclaim_grant, GrantRequest, {200: ReclaimGrantAnswer}),
    _work(X + "/reclaim", reclaim_execution, ReclaimRequest, {200: ReclaimAnswer}),
    route(
        "GET",
        "/v1/leases/expired",
        list_expired_leases,
        scope=Scope.READ,
        query=NamespacePageQuery,
        answers={200: page_of(ExpiredLease)},
    ),
)
