"""Overview: is it healthy, what is stuck, what needs a person."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import msgspec

from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.charts.bars import bars
from flowfabric.dashboard.charts.chart import Chart, Series
from flowfabric.dashboard.pages.filters import SINCES
from flowfabric.dashboard.pages.lanes import HUES, ICONS, live_workers, shown_lanes
from flowfabric.dashboard.table import screen
from flowfabric.dashboard.view.durations import length, parse_length
from flowfabric.dashboard.visit import Visit
from flowfabric.engine.executions.search import Search
from flowfabric.errors import FlowFabricError
from flowfabric.states import LaneState, PublicState, ScheduleState

WINDOWS: Final = SINCES[:5]
_COUNTED: Final = 10_000
_OUTCOMES: Final = (
    ("success", "f-green"),
    ("failed", "f-red"),
    ("cancelled", "f-brown"),
    ("expired", "f-amber"),
    ("skipped", "f-grey"),
)
_FAILURES: Final = ("failed", "expired")


class Concern(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs a person, in a sentence, worst first."""

    rank: int
    text: str
    href: str
    hue: str = "amber"


async def overview(visit: Visit) -> PageAnswer:
    """The first page; a part that cannot be read says so alone."""
    window = visit.query("window") if visit.query("window") in WINDOWS else "1h"
    within = parse_length(window) or timedelta(hours=1)
    values: dict[str, Any] = {"window": window, "windows": WINDOWS, "HUES": HUES, "ICONS": ICONS}
    broken: list[str] = []

    async def part(name: str, read: Callable[[], Awaitable[Any]], instead: Any) -> None:
        try:
            values[name] = await read()
        except FlowFabricError as error:
            broken.append(f"{name}: {error}")
            values[name] = instead

    await part("lanes", lambda: shown_lanes(visit), [])
    await part("workers", lambda: live_workers(visit), [])
    await part("counts", lambda: _counts(visit, within), {})
    await part("failures", lambda: _failures(visit, within), None)
    await part("chart", lambda: _throughput(visit, within), None)
    await part("concerns", lambda: _concerns(visit), [])
    workers = values["workers"]
    values["live"] = sum(each.alive for each in workers)
    values["silent"] = len(workers) - values["live"]
    values["slots"] = sum(each.concurrency for each in workers if each.alive)
    values["slots_used"] = sum(each.slots_used for each in workers)
    values["versions"] = sorted({each.version for each in workers if each.alive and each.version})
    values["oldest"] = min(
        (each.count.oldest_waiting_since for each in values["lanes"] if each.count.waiting),
        default=None,
        key=lambda at: at or visit.now,
    )
    values["broken"] = broken
    values["nothing_yet"] = not values["lanes"]
    return PageAnswer(template="overview.html", title="Overview", section="overview", values=values)


async def _counts(visit: Visit, within: timedelta) -> dict[str, str]:
    """How many executions are in each open state, and how many ended in the window."""
    found: dict[str, str] = {}
    for state in ("waiting", "active", "delayed", "suspended"):
        search = Search(namespace=visit.namespace, public_states=(PublicState(state),))
        found[state] = await _count(visit, search)
    for state in ("completed", *_FAILURES):
        search = Search(
            namespace=visit.namespace, public_states=(PublicState(state),), created_within=within
        )
        found[state] = await _count(visit, search)
    return found


async def _count(visit: Visit, search: Search) -> str:
    found = await visit.engine.count_matching(search, at_most=_COUNTED)
    return f"{found.count:,}+" if found.more else f"{found.count:,}"


async def _failures(visit: Visit, within: timedelta) -> Any:
    return await visit.engine.group_failures(window=within, namespace=visit.namespace)


async def _throughput(visit: Visit, within: timedelta) -> Chart:
    """What ended in each step of the window, by outcome."""
    activity = await visit.engine.read_activity(window=within, steps=60, namespace=visit.namespace)
    form = "%H:%M" if within <= timedelta(days=1) else "%m-%d %H:%M"
    labels = [each.begins_at.strftime(form) for each in activity.steps]
    series = [
        Series(
            name=outcome,
            look=look,
            values=[float(each.ended.get(outcome, 0)) for each in activity.steps],
        )
        for outcome, look in _OUTCOMES
    ]
    return bars(f"Executions that ended in the last {length(within)}", labels, series)


async def _concerns(visit: Visit) -> list[Concern]:
    found: list[Concern] = []
    engine, url = visit.engine, visit.url
    for each in await engine.list_unserved_routes(namespace=visit.namespace, limit=20):
        missing = ", ".join(each.missing_capabilities)
        text = f"Nobody can run {each.waiting:,} of {each.execution_kind} on lane {each.lane_id}"
        text += f"{f': {missing} is missing' if missing else ''},"
        text += f" since {length(visit.now - each.since)} ago"
        href = url("/executions", state="waiting", lane=each.lane_id, kind=each.execution_kind)
        found.append(Concern(rank=1, text=text, href=href, hue="red"))
    for lane in await engine.count_by_lane():
        if lane.lane_state is not LaneState.ACTIVE:
            by = f" by {lane.state_changed_by}" if lane.state_changed_by else ""
            why = f": {lane.state_reason}" if lane.state_reason else ""
            text = f"Lane {lane.lane_id} is {lane.lane_state}{by}{why}"
            found.append(Concern(rank=2, text=text, href=url(f"/lanes/{lane.lane_id}")))
    leases = await engine.list_expired_leases(namespace=visit.namespace, limit=100)
    if leases.leases:
        text = f"{len(leases.leases)} leases have run out and were not swept: do sweeps run?"
        href = url("/settings", tab="doctor", run=1)
        found.append(Concern(rank=0, text=text, href=href, hue="red"))
    open_ones = await engine.list_open_waitpoints(namespace=visit.namespace, limit=100)
    if open_ones.waitpoints:
        oldest = min(each.created_at for each in open_ones.waitpoints)
        count = f"{len(open_ones.waitpoints)}{' or more' if open_ones.next_cursor else ''}"
        text = f"{count} approvals are open, the oldest for {length(visit.now - oldest)}"
        found.append(Concern(rank=3, text=text, href=url("/approvals"), hue="violet"))
    review = Search(namespace=visit.namespace, divergent=True)
    stopped = await engine.count_matching(review, at_most=1000)
    if stopped.count:
        text = f"{stopped.count:,} executions stopped for review: their code does not fit"
        href = url("/executions", divergent="1")
        found.append(Concern(rank=2, text=text, href=href, hue="red"))
    for namespace in (await visit.namespaces())[:20]:
        broken = await engine.list_schedules(namespace=namespace, state=ScheduleState.BROKEN)
        found += [
            Concern(
                rank=2,
                text=f"Schedule {each.name} is broken: {each.state_reason}",
                href=url(f"/schedules/{each.name}", ns=namespace),
                hue="red",
            )
            for each in broken.schedules
        ]
    for name, age in engine.events.gap_ages().items():
        if age > 10:
            text = f"Events of {name} have waited for {length(age)} for a transaction to end"
            found.append(Concern(rank=1, text=text, href=url("/settings", tab="doctor", run=1)))
    return sorted(found, key=lambda each: each.rank)


ROUTES: Final = (screen("/", overview),)
