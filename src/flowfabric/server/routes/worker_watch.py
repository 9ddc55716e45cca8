"""What a worker asks beside its work: which leases it lost, and what is due."""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from flowfabric.engine.lifecycle.cancel import Cancellation, Cancelled
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.signal_holders import holder_topic
from flowfabric.errors import Refusal
from flowfabric.ids import ExecutionId, PartitionKey
from flowfabric.reconcile.make_due_claimable import expire_attempts_due, make_due_claimable
from flowfabric.server.call import ApiCall
from flowfabric.server.routes.work import many
from flowfabric.server.table import BATCH, CONTROL, Route, route
from flowfabric.states import Scope


class CancellationsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Executions that their holder ends without a result."""

    cancellations: list[Cancellation]


class Cancellations(msgspec.Struct, frozen=True, kw_only=True):
    """The answers in the order of the request."""

    results: list[Cancelled | Refusal]


class LostLeasesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Leases that the worker holds."""

    leases: list[Lease]


class LostLeases(msgspec.Struct, frozen=True, kw_only=True):
    """The answers in the order of the request: done for a lease that is held."""

    results: list[Refusal | None]


class WatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The worker process whose leases are watched, for `wait` seconds."""

    worker_instance_id: str
    wait: float = 0.0


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """May leases have been lost?"""

    signalled: bool


class DueRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Make claimable what is due; `timeouts` ends only the attempts whose time is over."""

    timeouts: bool = False


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """Is there more that is due?"""

    more: bool


class FieldsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of an execution that the worker runs."""

    execution_id: ExecutionId
    names: list[str]


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields as texts."""

    fields: dict[str, str | None]


async def cancel(call: ApiCall, body: CancellationsRequest) -> Cancellations:
    """End executions without a result."""
    many("cancellations", body.cancellations)
    results = await call.engine.cancel(body.cancellations)
    await call.engine.dispatch()
    await call.engine.unblock_keys_of([each.lease.execution_id for each in body.cancellations])
    return Cancellations(results=results)


async def find_lost_leases(call: ApiCall, body: LostLeasesRequest) -> LostLeases:
    """Which leases were ended by a decision elsewhere; none is extended."""
    many("leases", body.leases)
    return LostLeases(results=await call.engine.find_lost_leases(body.leases))


async def watch_leases(call: ApiCall, body: WatchRequest) -> Watched:
    """Answers as soon as a decision elsewhere may have ended a lease of the worker process."""
    services, until = call.services, time.monotonic() + call.seconds(body.wait)
    async with services.waiter([holder_topic(body.worker_instance_id)]) as waiter:
        while (left := until - time.monotonic()) > 0 and not services.draining.is_set():
            # Also where the waiter was not registered before: something may have been missed.
            if await services.pause(waiter, left):
                return Watched(signalled=True)
    return Watched(signalled=False)


async def make_due(call: ApiCall, body: DueRequest) -> Due:
    """Do now what the sweeps would do soon: a worker waits for it."""
    pool = call.engine.pool
    if body.timeouts:
        await expire_attempts_due(pool)
        return Due(more=False)
    return Due(more=await make_due_claimable(pool))


async def read_exec_core_fields(call: ApiCall, body: FieldsRequest) -> Fields:
    """Fields of an execution that the worker runs."""
    await call.check_executions([body.execution_id])
    found = await call.engine.read_exec_core_fields(
        PartitionKey("fp", body.execution_id.partition_key), body.execution_id, body.names
    )
    return Fields(fields=found)


def _work(path: str, handler: Any, body: Any, answer: Any, **more: Any) -> Route:
    settings: dict[str, Any] = {"limit": CONTROL, "answers": {200: answer}, **more}
    return route("POST", f"/v1/work/{path}", handler, scope=Scope.WORK, body=body, **settings)


ROUTES: Final[tuple[Route, ...]] = (
    _work("cancel", cancel, CancellationsRequest, Cancellations, limit=BATCH),
    _work("lost-leases", find_lost_leases, LostLeasesRequest, LostLeases, limit=BATCH),
    _work("watch", watch_leases, WatchRequest, Watched, waits=True),
    _work("due", make_due, DueRequest, Due),
    _work("fields", read_exec_core_fields, FieldsRequest, Fields),
)
