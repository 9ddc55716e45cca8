"""Schedules: created, changed, paused, triggered, and what became of their instants."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

import msgspec

from flowfabric.engine.schedules.backfill_schedule import Backfilled
from flowfabric.engine.schedules.definition import ScheduleDefinition
from flowfabric.engine.schedules.explain_schedule import ScheduleExplanation
from flowfabric.engine.schedules.list_schedule_fires import ScheduleFire
from flowfabric.engine.schedules.schedule import Schedule
from flowfabric.engine.schedules.trigger_schedule import Triggered
from flowfabric.errors import ScheduleChanged
from flowfabric.policy import ExecutionPolicy
from flowfabric.schedules.spec import ScheduleSpec
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.etags import expected_version
from flowfabric.server.pages import (
    NamespacePageQuery,
    NamespaceQuery,
    check_limit,
    page,
    page_of,
)
from flowfabric.server.problems import RequestProblem, invalid
from flowfabric.server.table import CONTROL, LARGE, NOTHING, Route, route
from flowfabric.states import ScheduleOverlap, ScheduleSource, ScheduleState, Scope

S: Final = "/v1/schedules/{name}"


class SchedulesQuery(NamespacePageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which schedules."""

    state: ScheduleState | None = None
    source: ScheduleSource | None = None


class FiresQuery(NamespaceQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Instants before this one, the newest first."""

    before: datetime | None = None
    limit: int = 50


class PreviewQuery(NamespaceQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many coming instants."""

    count: int = 5


class ScheduleChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What changes of a schedule; what is absent stays."""

    spec: ScheduleSpec | None = None
    execution_kind: str | None = None
    lane_id: str | None = None
    input_payload: bytes | None = None
    payload_encoding: str | None = None
    priority: int | None = None
    policy: ExecutionPolicy | None = None
    tags: dict[str, str] | None = None
    required_capabilities: tuple[str, ...] | None = None
    limit: str | None = None
    limit_key: str | None = None
    overlap: ScheduleOverlap | None = None
    catch_up: int | None = None
    catch_up_window: float | None = None
    jitter: float | None = None
    starts: datetime | None = None
    until: datetime | None = None
    runs: int | None = None
    reason: str | None = None
    """Why; no part of the schedule."""


class ScheduleUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """The whole definition; with `revision` only if the schedule still has that one."""

    definition: ScheduleDefinition
    revision: int | None = None
    reason: str | None = None


class CreateQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why."""

    reason: str | None = None


class DeleteQuery(NamespaceQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why."""

    reason: str | None = None


class ReasonRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Why."""

    reason: str | None = None


class ResumeScheduleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Why, and whether the instants of the pause are made up for."""

    reason: str | None = None
    catch_up: bool = False


class TriggerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Why; `force` fires also where the overlap policy would not."""

    reason: str | None = None
    force: bool = False
    trigger_id: UUID | None = None


class BackfillRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which past instants are fired."""

    start: datetime
    end: datetime
    reason: str | None = None


def shown(call: ApiCall, schedule: Schedule) -> Schedule:
    """The schedule, without its input for a token that must not see payloads."""
    if not call.principal.hide_payloads:
        return schedule
    definition = msgspec.structs.replace(schedule.definition, input_payload=b"")
    return msgspec.structs.replace(schedule, definition=definition)


class Fires(msgspec.Struct, frozen=True, kw_only=True):
    """What became of instants, the newest first."""

    items: list[ScheduleFire]


class Instants(msgspec.Struct, frozen=True, kw_only=True):
    """The coming instants."""

    items: list[datetime]


async def create_schedule(call: ApiCall, query: CreateQuery, body: ScheduleDefinition) -> Reply:
    """Create a schedule."""
    call.namespace(body.namespace)
    made = await call.engine.create_schedule(body, actor=call.actor)
    where = {"location": f"/v1/schedules/{quote(body.name, safe='')}"}
    return Reply(value=shown(call, made), headers=where, version=f"{made.revision:x}")


async def list_schedules(call: ApiCall, query: SchedulesQuery) -> Reply:
    """The schedules of a namespace, by name."""
    found = await call.engine.list_schedules(
        namespace=call.namespace(query.namespace),
        state=query.state,
        source=query.source,
        cursor=query.cursor,
        limit=check_limit(query.limit),
    )
    schedules = [shown(call, each) for each in found.schedules]
    return page(call, Schedule, schedules, found.next_cursor, query)


async def get_schedule(call: ApiCall, query: NamespaceQuery) -> Reply:
    """One schedule."""
    found = await call.engine.get_schedule(
        call.text("name"), namespace=call.namespace(query.namespace)
    )
    return Reply(value=shown(call, found), version=f"{found.revision:x}")


async def update_schedule(call: ApiCall, query: NamespaceQuery, body: ScheduleChanges) -> Reply:
    """Change a schedule; with `If-Match` only the version that was seen."""
    namespace = call.namespace(query.namespace)
    found = await call.engine.get_schedule(call.text("name"), namespace=namespace)
    expected = expected_version(call)
    if expected not in (None, f"{found.revision:x}"):
        raise _stale(found.revision)
    given = {name: each for name, each in msgspec.structs.asdict(body).items() if each is not None}
    given.pop("reason", None)
    changed = msgspec.structs.replace(found.definition, **given)
    try:
        made = await call.engine.update_schedule(changed, revision=found.revision, actor=call.actor)
    except ScheduleChanged as error:
        if expected is None:
            raise
        raise _stale(error.current) from None
    return Reply(value=shown(call, made), version=f"{made.revision:x}")


def _stale(revision: int) -> RequestProblem:
    return RequestProblem("stale_view", "the schedule has changed since", current=revision)


async def replace_schedule(call: ApiCall, body: ScheduleUpdate) -> Reply:
    """Change a schedule to this definition."""
    call.namespace(body.definition.namespace)
    if body.definition.name != call.text("name"):
        raise invalid("definition.name", "must be the name of the path")
    made = await call.engine.update_schedule(
        body.definition, revision=body.revision, actor=call.actor
    )
    return Reply(value=shown(call, made), version=f"{made.revision:x}")


async def delete_schedule(call: ApiCall, query: DeleteQuery) -> None:
    """Delete a schedule; its executions stay."""
    await call.engine.delete_schedule(
        call.text("name"),
        namespace=call.namespace(query.namespace),
        reason=query.reason,
        actor=call.actor,
    )


async def pause_schedule(call: ApiCall, query: NamespaceQuery, body: ReasonRequest) -> Schedule:
    """Let the schedule fire no more until it is resumed."""
    found = await call.engine.pause_schedule(
        call.text("name"),
        namespace=call.namespace(query.namespace),
        reason=body.reason,
        actor=call.actor,
    )
    return shown(call, found)


async def resume_schedule(
    call: ApiCall, query: NamespaceQuery, body: ResumeScheduleRequest
) -> Schedule:
    """Let the schedule fire again."""
    found = await call.engine.resume_schedule(
        call.text("name"),
        namespace=call.namespace(query.namespace),
        catch_up=body.catch_up,
        reason=body.reason,
        actor=call.actor,
    )
    return shown(call, found)


async def trigger_schedule(call: ApiCall, query: NamespaceQuery, body: TriggerRequest) -> Triggered:
    """Fire the schedule now."""
    return await call.engine.trigger_schedule(
        call.text("name"),
        namespace=call.namespace(query.namespace),
        force=body.force,
        trigger_id=body.trigger_id,
        reason=body.reason,
        actor=call.actor,
    )


async def backfill_schedule(
    call: ApiCall, query: NamespaceQuery, body: BackfillRequest
) -> Backfilled:
    """Fire the schedule for past instants."""
    return await call.engine.backfill_schedule(
        call.text("name"),
        body.start,
        body.end,
        namespace=call.namespace(query.namespace),
        reason=body.reason,
        actor=call.actor,
    )


async def list_schedule_fires(call: ApiCall, query: FiresQuery) -> Fires:
    """What became of the instants of the schedule."""
    found = await call.engine.list_schedule_fires(
        call.text("name"),
        namespace=call.namespace(query.namespace),
        before=query.before,
        limit=check_limit(query.limit),
    )
    return Fires(items=found)


async def preview_schedule(call: ApiCall, query: PreviewQuery) -> Instants:
    """When the schedule fires next."""
    found = await call.engine.preview_schedule(
        call.text("name"), query.count, namespace=call.namespace(query.namespace)
    )
    return Instants(items=found)


async def explain_schedule(call: ApiCall, query: NamespaceQuery) -> ScheduleExplanation:
    """Why the schedule fires or does not."""
    return await call.engine.explain_schedule(
        call.text("name"), namespace=call.namespace(query.namespace)
    )


def _read(path: str, handler: Any, answer: Any, query: Any, **more: Any) -> Route:
    return route("GET", path, handler, scope=Scope.READ, query=query, answers={200: answer}, **more)


def _operate(method: str, path: str, handler: Any, answers: Any, **more: Any) -> Route:
    settings: dict[str, Any] = {"limit": CONTROL, "query": NamespaceQuery, **more}
    return route(method, path, handler, scope=Scope.OPERATE, answers=answers, **settings)


ROUTES: Final[tuple[Route, ...]] = (
    _operate(
        "POST",
        "/v1/schedules",
        create_schedule,
        {201: Schedule},
        body=ScheduleDefinition,
        limit=LARGE,
        query=CreateQuery,
    ),
    _read("/v1/schedules", list_schedules, page_of(Schedule), SchedulesQuery),
    _read(S, get_schedule, Schedule, NamespaceQuery, etag=True),
    _operate(
        "PATCH",
        S,
        update_schedule,
        {200: Schedule},
        body=ScheduleChanges,
        limit=LARGE,
        if_match=True,
    ),
    route(
        "DELETE",
        S,
        delete_schedule,
        scope=Scope.OPERATE,
        query=DeleteQuery,
        answers={204: NOTHING},
    ),
    _operate(
        "PUT", S, replace_schedule, {200: Schedule}, body=ScheduleUpdate, limit=LARGE, query=None
    ),
    _operate("POST", S + "/pause", pause_schedule, {200: Schedule}, body=ReasonRequest),
    _operate("POST", S + "/resume", resume_schedule, {200: Schedule}, body=ResumeScheduleRequest),
    _operate("POST", S + "/trigger", trigger_schedule, {200: Triggered}, body=TriggerRequest),
    _operate("POST", S + "/backfill", backfill_schedule, {200: Backfilled}, body=BackfillRequest),
    _read(S + "/history", list_schedule_fires, Fires, FiresQuery),
    _read(S + "/preview", preview_schedule, Instants, PreviewQuery),
    _read(S + "/explanation", explain_schedule, ScheduleExplanation, NamespaceQuery),
)
