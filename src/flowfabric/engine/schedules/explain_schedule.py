"""Why a schedule fires or does not, when it fires next, and what would change that."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, LiteralString
from zoneinfo import ZoneInfo

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.schedules.get_schedule import read_schedule
from flowfabric.engine.schedules.list_schedule_fires import ScheduleFire, list_schedule_fires
from flowfabric.engine.schedules.open_executions import read_open_executions
from flowfabric.engine.schedules.overlap import OpenExecution
from flowfabric.engine.schedules.preview_schedule import upcoming
from flowfabric.engine.schedules.schedule import StoredSchedule
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import LaneState, ScheduleOutcome, ScheduleState

SHOWN: Final = 5
_LATE_MS: Final = 10_000

EXPLAIN_SCHEDULE: Final[LiteralString] = """
-- schedules.explain_schedule
WITH alive AS (
    SELECT %(lane_id)s = ANY (lanes) AS on_lane, capabilities,
           kinds = '{}' OR %(execution_kind)s = ANY (kinds) AS of_kind
      FROM ff.worker_registry
     WHERE namespace = %(namespace)s AND last_heartbeat_ms + liveness_ttl_ms > ff.now_ms()
)
SELECT coalesce((SELECT lane_state FROM ff.lane_registry WHERE lane_id = %(lane_id)s), 'active')
           AS lane_state,
       (SELECT state_changed_by FROM ff.lane_registry WHERE lane_id = %(lane_id)s) AS lane_by,
       (SELECT count(*) FROM alive WHERE on_lane AND of_kind
           AND %(required_capabilities)s::text[] <@ capabilities) AS able_workers,
       EXISTS (SELECT FROM ff.sweeper WHERE held_until_ms > ff.now_ms()) AS swept,
       %(limit_name)s::text IS NOT NULL AND NOT EXISTS (
           SELECT FROM ff.quota_policy p
            WHERE (p.namespace, p.name) = (%(namespace)s, %(limit_name)s)) AS lost_limit
"""


class ScheduleReason(msgspec.Struct, frozen=True, kw_only=True):
    """What is the case, and what would change it."""

    message: str
    remedy: str


class UpcomingInstant(msgspec.Struct, frozen=True, kw_only=True):
    """An instant at which the schedule fires, in UTC and in its zone."""

    at: datetime
    local: datetime


class ScheduleExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a schedule fires or does not; the first reason is the decisive one."""

    name: str
    state: ScheduleState
    spec: str
    upcoming: list[UpcomingInstant]
    last: ScheduleFire | None
    """What became of its last instant."""
    running: list[ExecutionId]
    """Of its last executions those that have not ended."""
    reasons: list[ScheduleReason]

    @property
    def summary(self) -> str:
        return self.reasons[0].message


class _Around(msgspec.Struct, frozen=True):
    lane_state: str
    lane_by: str | None
    able_workers: int
    swept: bool
    lost_limit: bool


async def explain_schedule(
    conn: Connection, name: str, *, namespace: str = "default", partitions: int = 256
) -> ScheduleExplanation:
    """When the schedule fires next, what it did last, and what is in its way.

    Reads several times: for one view of everything it needs a snapshot. Raises `NotFound`.
    """
    stored = await read_schedule(conn, namespace, name, partitions=partitions)
    last = await list_schedule_fires(
        conn, name, namespace=namespace, limit=1, partitions=partitions
    )
    running = await read_open_executions(conn, stored.latest)
    around = await fetch_one(
        conn,
        EXPLAIN_SCHEDULE,
        _Around,
        lane_id=stored.lane_id,
        execution_kind=stored.execution_kind,
        namespace=namespace,
        required_capabilities=stored.required_capabilities,
        limit_name=stored.limit_name,
    )
    return ScheduleExplanation(
        name=name,
        state=ScheduleState(stored.state),
        spec=str(stored.spec),
        upcoming=_upcoming(stored),
        last=last[0] if last else None,
        running=[each.execution_id for each in running],
        reasons=list(_reasons(stored, around, last[0] if last else None, running)),
    )


def _upcoming(stored: StoredSchedule) -> list[UpcomingInstant]:
    try:
        zone = ZoneInfo(stored.tz)
        found = upcoming(stored, SHOWN)
    except (ValidationError, KeyError, ValueError, OSError):  # why it is broken
        return []
    return [UpcomingInstant(at=at, local=at.astimezone(zone)) for at in found]


def _reasons(
    stored: StoredSchedule,
    around: _Around,
    last: ScheduleFire | None,
    running: list[OpenExecution],
) -> Iterator[ScheduleReason]:
    in_its_way = list(_obstacles(stored, around))
    yield _state(stored, around, is_free=not in_its_way)
    yield from in_its_way
    if last is not None and last.outcome in (
        ScheduleOutcome.SKIPPED,
        ScheduleOutcome.MISSED,
        ScheduleOutcome.REFUSED,
    ):
        yield ScheduleReason(
            message=f"its last instant, {_at(last.fire_at)}, was {last.outcome}: {last.reason}",
            remedy=f"fire it all the same: ff schedules trigger {stored.name!r}",
        )
    if running:
        waits = sum(each.held for each in running)
        others = f", {waits} of them waiting for their turn" if waits else ""
        ids = ", ".join(str(each.execution_id) for each in running[:3])
        yield ScheduleReason(
            message=f"{len(running)} of its executions {'has' if len(running) == 1 else 'have'} "
            f"not ended{others}: {ids}" + (" …" if len(running) > 3 else ""),
            remedy=f"overlap is {stored.overlap!r}; ff explain '{running[0].execution_id}'",
        )


def _obstacles(stored: StoredSchedule, around: _Around) -> Iterator[ScheduleReason]:
    """Why an instant is refused, or why its execution does not run."""
    if LaneState(around.lane_state) is not LaneState.ACTIVE:
        by = f" by {around.lane_by}" if around.lane_by else ""
        takes = (
            "starts nothing"
            if around.lane_state == LaneState.PAUSED
            else "takes no new executions, so its instants are refused"
        )
        yield ScheduleReason(
            message=f"lane {stored.lane_id!r} is {around.lane_state}{by}: it {takes}",
            remedy=f"ff lanes resume {stored.lane_id!r}",
        )
    if around.able_workers == 0:
        yield ScheduleReason(
            message=f"no live worker can run kind {stored.execution_kind!r} "
            f"on lane {stored.lane_id!r} in namespace {stored.namespace!r}",
            remedy="start a worker whose application has this task: ff worker MODULE:APP",
        )
    if around.lost_limit:
        yield ScheduleReason(
            message=f"limit {stored.limit_name!r} does not exist, so its instants are refused",
            remedy=f"ff limits set {stored.limit_name!r} --concurrency N",
        )


def _state(stored: StoredSchedule, around: _Around, *, is_free: bool) -> ScheduleReason:
    name = stored.name
    match ScheduleState(stored.state):
        case ScheduleState.PAUSED:
            why = f": {stored.state_reason}" if stored.state_reason else ""
            since = _at(instant(stored.state_changed_at_ms or stored.created_at_ms))
            return ScheduleReason(
                message=f"paused by {stored.state_by} since {since}{why}",
                remedy=f"ff schedules resume {name!r}",
            )
        case ScheduleState.FINISHED:
            return ScheduleReason(
                message="finished: it has no further instant",
                remedy="give it another definition, or delete it",
            )
        case ScheduleState.BROKEN:
            return ScheduleReason(
                message=f"broken: {stored.state_reason}",
                remedy=f"correct it, or once the cause is gone: ff schedules resume {name!r}",
            )
        case ScheduleState.ACTIVE:
            at_ms = stored.next_fire_at_ms or 0
            if stored.now_ms - at_ms > _LATE_MS:
                return ScheduleReason(
                    message=f"due since {_at(instant(at_ms))}, and not fired yet",
                    remedy="a worker fires it at once"
                    if around.swept
                    else "no worker process runs that fires schedules: start one",
                )
            return ScheduleReason(
                message=f"fires next at {_at(instant(at_ms))}",
                remedy="nothing is in its way" if is_free else "but something is in its way",
            )


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
