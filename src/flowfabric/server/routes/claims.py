"""Claims: what a worker that lives on HTTP alone gets to run."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final
from uuid import UUID

import msgspec

from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.read_claimed import StillClaimed
from flowfabric.engine.lifecycle.sql.lease import Claimed
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.routes.work import many
from flowfabric.server.table import CONTROL, NOTHING, Route, route
from flowfabric.states import Scope


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker can run, how much of it, and for how many seconds it may wait for it."""

    worker_id: str
    worker_instance_id: str
    lanes: tuple[str, ...] = ("default",)
    kinds: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] = ()
    namespace: str | None = None
    limit: int = 1
    ttl: float = 30.0
    wait: float = 0.0
    lease_id: UUID | None = None


class ClaimAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was leased to the worker; `lease` goes into every call about an execution.

    The leases began at least `waited` seconds after the request was sent.
    """

    executions: list[Claimed]
    waited: float = 0.0


class StillClaimedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The leases of claims whose answer was lost."""

    lease_ids: list[UUID]
    worker_instance_id: str


class StillClaimedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What those claims had leased."""

    executions: list[StillClaimed]


async def claim(call: ApiCall, body: ClaimRequest) -> Reply:
    """Lease executions to the worker; 204 if there are none within `wait` seconds.

    A claim whose client has left hands back what it got.
    """
    claimant = Claimant(
        worker_id=body.worker_id,
        worker_instance_id=body.worker_instance_id,
        lanes=body.lanes,
        kinds=body.kinds,
        capabilities=body.capabilities,
        namespace=call.namespace(body.namespace),
    )
    began = asked_at = time.monotonic()
    until = began + call.seconds(body.wait)
    draining = call.services.draining
    if draining.is_set():
        return Reply(status=204)
    found = await _claim_once(call, claimant, body)
    if found or body.wait <= 0:
        return _claimed(found, 0.0)
    async with call.services.waiter([f"lane:{lane}" for lane in claimant.lanes]) as waiter:
        while not found and not draining.is_set():
            left = until - time.monotonic()
            if left <= 0:
                break
            await call.services.pause(waiter, left)
            if not draining.is_set():
                asked_at = time.monotonic()
                found = await _claim_once(call, claimant, body)
    return _claimed(found, asked_at - began)


def _claimed(found: list[Claimed], waited: float) -> Reply:
    if not found:
        return Reply(status=204)
    return Reply(value=ClaimAnswer(executions=found, waited=waited))


async def _claim_once(call: ApiCall, claimant: Claimant, body: ClaimRequest) -> list[Claimed]:
    claiming = asyncio.ensure_future(
        call.engine.claim(claimant, ttl=body.ttl, limit=body.limit, lease_id=body.lease_id)
    )
    try:
        found = await asyncio.shield(claiming)
        call.services.plain_claims.note(found)
        return found
    except asyncio.CancelledError:
        found = await claiming
        if found:
            await call.engine.release([each.lease for each in found])
        raise


async def read_claimed(call: ApiCall, body: StillClaimedRequest) -> StillClaimedAnswer:
    """What claims had leased whose answers were lost."""
    many("lease_ids", body.lease_ids)
    found = await call.engine.read_claimed(
        body.lease_ids, worker_instance_id=body.worker_instance_id
    )
    return StillClaimedAnswer(executions=found)


def _work(path: str, handler: Any, body: Any, answer: Any, **more: Any) -> Route:
    settings: dict[str, Any] = {"limit": CONTROL, "answers": {200: answer}, **more}
    return route("POST", f"/v1/work/{path}", handler, scope=Scope.WORK, body=body, **settings)


ROUTES: Final[tuple[Route, ...]] = (
    _work(
        "claim",
        claim,
        ClaimRequest,
        ClaimAnswer,
        limit=CONTROL,
        answers={200: ClaimAnswer, 204: NOTHING},
        waits=True,
    ),
    _work("claimed", read_claimed, StillClaimedRequest, StillClaimedAnswer, limit=CONTROL),
)
