"""Workers: they register, say that they live, and are listed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flowfabric.engine.workers.find_unserved import Unserved
from flowfabric.engine.workers.heartbeat_worker import WorkerNotRegistered, WorkerRefreshed
from flowfabric.engine.workers.list_unserved_routes import UnservedRoute
from flowfabric.engine.workers.list_worker_events import WorkerEvent
from flowfabric.engine.workers.list_workers import WorkerEntry
from flowfabric.engine.workers.mark_worker_dead import STOPPED, WorkerMarkedDead
from flowfabric.engine.workers.register_worker import WorkerRegistered
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.pages import NamespacePageQuery, check_limit, page, page_of
from flowfabric.server.table import CONTROL, Route, route
from flowfabric.states import Scope


class RegisterRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process and what it runs; it counts as alive for `liveness_ttl` seconds."""

    worker_id: str
    worker_instance_id: str
    lanes: list[str]
    capabilities: list[str] = []
    kinds: list[str] = []
    concurrency: int = 1
    liveness_ttl: float = 60.0
    namespace: str | None = None
    version: str = ""
    host: str = ""


class HeartbeatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The worker lives."""

    namespace: str | None = None
    stuck_threads: Mapping[str, int] = {}
    unclaimed_kinds: list[str] = []
    loop_blocked: float = 0.0


class DeadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The worker does not live any more: its executions are claimable again."""

    reason: str
    namespace: str | None = None


class StoppedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The worker has stopped, and holds no lease."""

    namespace: str | None = None


class WorkerEventsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happened to workers of a namespace."""

    namespace: str | None = None
    worker_instance_id: str | None = None
    limit: int = 50


class WorkerEvents(msgspec.Struct, frozen=True, kw_only=True):
    """The newest first."""

    items: list[WorkerEvent]


class UnservedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs of a kind and a lane."""

    kinds: list[tuple[str, str]]
    namespace: str | None = None


class UnservedRoutesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In which namespace, and how many."""

    namespace: str | None = None
    limit: int = 100


class UnservedRoutes(msgspec.Struct, frozen=True, kw_only=True):
    """Work that nobody can run, the longest waiting first."""

    items: list[UnservedRoute]


class UnservedKinds(msgspec.Struct, frozen=True, kw_only=True):
    """Those that no live worker serves."""

    items: list[Unserved]


async def register_worker(
    call: ApiCall, body: RegisterRequest
) -> WorkerRegistered | WorkerRefreshed:
    """Register a worker process, or say again what it runs."""
    fields = msgspec.structs.asdict(body)
    fields["namespace"] = call.namespace(body.namespace)
    return await call.engine.register_worker(**fields)


async def heartbeat_worker(
    call: ApiCall, body: HeartbeatRequest
) -> WorkerRefreshed | WorkerNotRegistered:
    """Say that the worker lives."""
    return await call.engine.heartbeat_worker(
        call.text("worker_instance_id"),
        namespace=call.namespace(body.namespace),
        stuck_threads=body.stuck_threads,
        unclaimed_kinds=body.unclaimed_kinds,
        loop_blocked=body.loop_blocked,
    )


async def mark_worker_dead(
    call: ApiCall, body: DeadRequest
) -> WorkerMarkedDead | WorkerNotRegistered:
    """Say that the worker does not live any more."""
    return await call.engine.mark_worker_dead(
        call.text("worker_instance_id"),
        reason=body.reason,
        namespace=call.namespace(body.namespace),
        actor=call.actor,
    )


async def mark_worker_stopped(
    call: ApiCall, body: StoppedRequest
) -> WorkerMarkedDead | WorkerNotRegistered:
    """Say, as the worker itself, that it has stopped."""
    return await call.engine.mark_worker_dead(
        call.text("worker_instance_id"), reason=STOPPED, namespace=call.namespace(body.namespace)
    )


async def list_workers(call: ApiCall, query: NamespacePageQuery) -> Reply:
    """The workers of a namespace."""
    found = await call.engine.list_workers(
        call.namespace(query.namespace), after=query.cursor, limit=check_limit(query.limit)
    )
    return page(call, WorkerEntry, found.workers, found.next_cursor, query)


async def list_worker_events(call: ApiCall, query: WorkerEventsQuery) -> WorkerEvents:
    """When workers came and went."""
    found = await call.engine.list_worker_events(
        call.namespace(query.namespace),
        worker_instance_id=query.worker_instance_id,
        limit=check_limit(query.limit),
    )
    return WorkerEvents(items=found)


async def find_unserved(call: ApiCall, body: UnservedRequest) -> UnservedKinds:
    """Which of some kinds on their lanes no live worker serves."""
    namespace = call.namespace(body.namespace)
    return UnservedKinds(items=await call.engine.find_unserved(namespace, body.kinds))


async def list_unserved_routes(call: ApiCall, query: UnservedRoutesQuery) -> UnservedRoutes:
    """Work that waits although no live worker can run it."""
    found = await call.engine.list_unserved_routes(
        namespace=call.only(query.namespace), limit=check_limit(query.limit)
    )
    return UnservedRoutes(items=found)


def _post(path: str, handler: Any, body: Any, answer: Any, scope: Scope) -> Route:
    return route(
        "POST", path, handler, scope=scope, limit=CONTROL, body=body, answers={200: answer}
    )


W: Final = "/v1/workers/{worker_instance_id}"
ROUTES: Final[tuple[Route, ...]] = (
    _post(
        "/v1/workers",
        register_worker,
        RegisterRequest,
        WorkerRegistered | WorkerRefreshed,
        Scope.WORK,
    ),
    _post(
        W + "/heartbeat",
        heartbeat_worker,
        HeartbeatRequest,
        WorkerRefreshed | WorkerNotRegistered,
        Scope.WORK,
    ),
    _post(
        W + "/stopped",
        mark_worker_stopped,
        StoppedRequest,
        WorkerMarkedDead | WorkerNotRegistered,
        Scope.WORK,
    ),
    _post(
        W + "/dead",
        mark_worker_dead,
        DeadRequest,
        WorkerMarkedDead | WorkerNotRegistered,
        Scope.OPERATE,
    ),
    route(
        "GET",
        "/v1/workers",
        list_workers,
        scope=Scope.READ,
        query=NamespacePageQuery,
        answers={200: page_of(WorkerEntry)},
    ),
    route(
        "GET",
        "/v1/workers/events",
        list_worker_events,
        scope=Scope.READ,
        query=WorkerEventsQuery,
        answers={200: WorkerEvents},
    ),
    route(
        "GET",
        "/v1/unserved",
        list_unserved_routes,
        scope=Scope.READ,
        query=UnservedRoutesQuery,
        answers={200: UnservedRoutes},
    ),
    _post("/v1/unserved", find_unserved, UnservedRequest, UnservedKinds, Scope.READ),
)
