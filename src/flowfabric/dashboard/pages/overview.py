"""Overview: is it healthy, what is stuck, what needs a person."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import msgspec

from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.charts.chart import Chart
from flowfabric.dashboard.pages.activity import ended_chart, times_chart
from flowfabric.dashboard.pages.concerns import concerns
from flowfabric.dashboard.pages.filters import SINCES
from flowfabric.dashboard.pages.lanes import HUES, ICONS, lane_rates, live_workers, shown_lanes
from flowfabric.dashboard.table import screen
from flowfabric.dashboard.view.durations import parse_length
from flowfabric.dashboard.visit import Visit
from flowfabric.engine.executions.count_by_state import in_all_lanes
from flowfabric.engine.executions.count_matching import MatchCount
from flowfabric.errors import FlowFabricError

WINDOWS: Final = SINCES[:5]
_COUNTED: Final = 10_000
_FAILURES: Final = ("failed", "expired")
_VARYING: Final = re.compile(r"<(?:uuid|text|hex|n)>")
_TELLING: Final = 6


async def overview(visit: Visit) -> PageAnswer:
    """The first page; a part that cannot be read says so alone."""
    window = visit.query("window") if visit.query("window") in WINDOWS else "1h"
    within = parse_length(window) or timedelta(hours=1)
    values: dict[str, Any] = {"window": window, "windows": WINDOWS, "HUES": HUES, "ICONS": ICONS}
    values["literal_of"] = literal_of
    broken: list[str] = []
    seen_by = "everything" if visit.principal.everywhere else ""

    async def part(name: str, read: Callable[[], Awaitable[Any]], instead: Any) -> None:
        try:
            values[name] = await visit.shared(f"overview {name}", read, window, seen_by)
        except FlowFabricError as error:
            broken.append(f"{name}: {error}")
            values[name] = instead

    await part("lanes", lambda: shown_lanes(visit), [])
    await part("workers", lambda: live_workers(visit), [])
    await part("counts", lambda: _counts(visit), {})
    await part("failures", lambda: _failures(visit, within), None)
    await part("ends", lambda: _ends(visit, within), None)
    await part("rates", lambda: lane_rates(visit), {})
    await part("concerns", lambda: concerns(visit), [])
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


async def _counts(visit: Visit) -> dict[str, str]:
    """How many executions are in each open state."""
    lanes = await visit.engine.count_by_state(namespace=visit.namespace, at_most=_COUNTED)
    return {state.value: _number(count) for state, count in in_all_lanes(lanes).items()}


def _number(found: MatchCount) -> str:
    return f"{found.count:,}+" if found.more else f"{found.count:,}"


async def _failures(visit: Visit, within: timedelta) -> Any:
    return await visit.engine.group_failures(window=within, namespace=visit.namespace)


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """What ended in the window: charts, and figures of the tiles."""

    ended: Chart
    times: Chart
    per_minute: float
    count: int
    failed: int

    @property
    def share(self) -> str:
        """The share that failed, in percent."""
        if not self.count:
            return "\N{EN DASH}"
        percent = 100 * self.failed / self.count
        return f"{percent:.0f} %" if percent >= 10 or not self.failed else f"{percent:.1f} %"


async def _ends(visit: Visit, within: timedelta) -> Ends:
    activity = await visit.engine.read_activity(window=within, steps=60, namespace=visit.namespace)
    ended = activity.whole.ended
    count = sum(ended.values())
    return Ends(
        ended=ended_chart(activity, within),
        times=times_chart(activity, within),
        per_minute=count / (within.total_seconds() / 60),
        count=count,
        failed=sum(ended.get(each, 0) for each in _FAILURES),
    )


def literal_of(signature: str) -> str:
    """The longest part of the form of an error that does not vary; empty if none says enough."""
    longest = max(_VARYING.split(signature), key=len, default="").strip()
    return longest if len(longest) >= _TELLING else ""


ROUTES: Final = (screen("/", overview),)
