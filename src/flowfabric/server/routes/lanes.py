"""Lanes: what waits in them, whether they are served, and how long their past is kept."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flowfabric.engine.lanes.count_by_lane import LaneCount
from flowfabric.engine.lanes.set_lane_state import LaneChanged
from flowfabric.engine.retention.trim import Trim
from flowfabric.errors import NotFound
from flowfabric.ids import check_lane
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.etags import expected_version
from flowfabric.server.table import CONTROL, NOTHING, Route, route
from flowfabric.states import LaneState, Scope

L: Final = "/v1/lanes/{lane_id}"


class Lanes(msgspec.Struct, frozen=True, kw_only=True):
    """Every lane, with counts over the namespaces of the caller."""

    items: list[LaneCount]


class LanesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Lanes to register."""

    lanes: list[str]


class LaneStateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the lane takes executions and is served."""

    lane_state: LaneState
    reason: str | None = None


class RetentionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """For how many seconds finished executions are kept; 0 for ever, null for the default."""

    retention: float | None
    reason: str | None = None


class TrimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is deleted: finished executions that are older; `preview` only counts them."""

    retention: float
    namespace: str | None = None
    batch_size: int = 500
    preview: bool = False
    reason: str | None = None


class Trimmed(msgspec.Struct, frozen=True, kw_only=True):
    """How many executions were deleted, or would be."""

    executions: int
    preview: bool


async def count_by_lane(call: ApiCall) -> Lanes:
    """The lanes and what waits in them."""
    return Lanes(items=await call.engine.count_by_lane(namespaces=call.namespaces))


async def describe_lane(call: ApiCall) -> Reply:
    """One lane; `If-Match` compares its state and its retention."""
    lane_id = check_lane(call.text("lane_id"))
    for each in await call.engine.count_by_lane(namespaces=call.namespaces):
        if each.lane_id == lane_id:
            return Reply(value=each, version=each.version)
    raise NotFound("lane", lane_id)


async def register_lanes(call: ApiCall, body: LanesRequest) -> None:
    """Register lanes; those that are there already stay as they are."""
    await call.engine.register_lanes(body.lanes, registered_by=call.actor)


async def set_lane_state(call: ApiCall, body: LaneStateRequest) -> LaneChanged:
    """Pause, drain, disable or activate a lane."""
    return await call.engine.set_lane_state(
        call.text("lane_id"),
        body.lane_state,
        reason=body.reason,
        expected_version=expected_version(call),
        actor=call.actor,
    )


async def set_lane_retention(call: ApiCall, body: RetentionRequest) -> None:
    """Say how long finished executions of a lane are kept."""
    await call.engine.set_lane_retention(
        call.text("lane_id"),
        body.retention,
        expected_version=expected_version(call),
        actor=call.actor,
    )


async def trim_retention(call: ApiCall, body: TrimRequest) -> Trimmed:
    """Delete finished executions of a lane, a batch at a time."""
    trim = Trim(lane_id=call.text("lane_id"), retention=body.retention, namespace=body.namespace)
    if body.preview:
        found = await call.engine.count_trimmable(trim)
    else:
        found = await call.engine.trim_retention(trim, batch_size=body.batch_size, actor=call.actor)
    return Trimmed(executions=found, preview=body.preview)


def _operate(
    method: str, path: str, handler: Any, body: Any, answers: Any, *, if_match: bool = False
) -> Route:
    return route(
        method,
        L + path,
        handler,
        scope=Scope.OPERATE_ALL,
        limit=CONTROL,
        body=body,
        answers=answers,
        if_match=if_match,
    )


ROUTES: Final[tuple[Route, ...]] = (
    route("GET", "/v1/lanes", count_by_lane, scope=Scope.READ, answers={200: Lanes}),
    route("GET", L, describe_lane, scope=Scope.READ, answers={200: LaneCount}, etag=True),
    route(
        "POST",
        "/v1/lanes",
        register_lanes,
        scope=Scope.WRITE,
        limit=CONTROL,
        body=LanesRequest,
        answers={204: NOTHING},
    ),
    _operate("PUT", "/state", set_lane_state, LaneStateRequest, {200: LaneChanged}, if_match=True),
    _operate(
        "PUT", "/retention", set_lane_retention, RetentionRequest, {204: NOTHING}, if_match=True
    ),
    _operate("POST", "/trim", trim_retention, TrimRequest, {200: Trimmed}),
)
