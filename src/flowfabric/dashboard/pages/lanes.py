"""Lanes: what waits and runs on each, and their controls."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, Literal

import msgspec

from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.charts.lines import sparkline
from flowfabric.dashboard.pages.activity import ended_chart, times_chart
from flowfabric.dashboard.problems import FormProblem, not_found
from flowfabric.dashboard.table import ActDone, Ask, Dialog, DialogField, Do, Preview, act, screen
from flowfabric.dashboard.view.durations import length, parse_length
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.executions.count_matching import MatchCount
from flowfabric.engine.executions.search_executions import FoundExecution, Search
from flowfabric.engine.lanes.count_by_lane import LaneCount
from flowfabric.engine.lanes.set_lane_retention import KEEP
from flowfabric.engine.retention.trim import Trim
from flowfabric.engine.workers.list_workers import WorkerEntry
from flowfabric.policy import DEFAULT_RETENTION
from flowfabric.states import LaneState, PublicState, Scope

HUES: Final = {
    LaneState.ACTIVE: "green",
    LaneState.PAUSED: "amber",
    LaneState.DRAINING: "violet",
    LaneState.DISABLED: "red",
}
ICONS: Final = {
    LaneState.ACTIVE: "play",
    LaneState.PAUSED: "pause",
    LaneState.DRAINING: "down",
    LaneState.DISABLED: "slash",
}
EFFECTS: Final = {
    LaneState.ACTIVE: "The lane takes new executions and starts those that it has.",
    LaneState.PAUSED: "The lane takes new executions and starts none. What runs goes on.",
    LaneState.DRAINING: "The lane takes no new executions and starts those that it has.",
    LaneState.DISABLED: "The lane takes no new executions and starts none. What runs goes on.",
}
_CONTROLS: Final = {
    "pause": (LaneState.PAUSED, "Pause", "Pause lane"),
    "drain": (LaneState.DRAINING, "Drain", "Drain lane"),
    "disable": (LaneState.DISABLED, "Disable", "Disable lane"),
    "resume": (LaneState.ACTIVE, "Resume", "Resume lane"),
}
_COUNTED: Final = (
    "waiting",
    "delayed",
    "active",
    "suspended",
    "waiting_children",
    "rate_limited",
)
_SHOWN: Final = 20
_RATED: Final = timedelta(minutes=30)
WINDOWS: Final = ("1h", "15m", "6h", "24h", "7d")
_MOST_COUNTED: Final = 10_000
_BATCH: Final = 500
_MOST_TRIMMED: Final = 50_000


class ShownLane(msgspec.Struct, frozen=True, kw_only=True):
    """A lane with the workers that serve it."""

    count: LaneCount
    workers: int
    slots: int

    @property
    def is_empty(self) -> bool:
        """Has it nothing that has not ended?"""
        return self.count.left == 0

    @property
    def controls(self) -> list[tuple[str, str]]:
        """The controls that would change its state: their paths and words."""
        return [
            (path, label)
            for path, (state, label, _) in _CONTROLS.items()
            if state is not self.count.lane_state
        ]

    @property
    def kept(self) -> str:
        """How long ended executions are kept."""
        kept = self.count.retention
        if kept is None:
            return f"{length(DEFAULT_RETENTION)} (default)"
        return "for ever" if kept.total_seconds() == KEEP else length(kept)


async def live_workers(visit: Visit) -> list[WorkerEntry]:
    """The workers of the namespaces that the page looks at."""
    found: list[WorkerEntry] = []
    for namespace in (await visit.namespaces())[:50]:
        found += (await visit.engine.list_workers(namespace)).workers
    return found


async def lane_counts(visit: Visit) -> list[LaneCount]:
    """All lanes, with the executions of the namespace that is looked at, and of no other."""
    found = await visit.engine.count_by_lane()
    if visit.namespace is None:
        return found
    lanes = await visit.engine.count_by_state(namespace=visit.namespace, at_most=_MOST_COUNTED)
    own = {lane.lane_id: lane.counts for lane in lanes}
    return [_own(each, own.get(each.lane_id, {})) for each in found]


def _shown(count: LaneCount, workers: list[WorkerEntry]) -> ShownLane:
    serving = [each for each in workers if each.alive and count.lane_id in each.lanes]
    slots = sum(each.concurrency for each in serving)
    return ShownLane(count=count, workers=len(serving), slots=slots)


async def shown_lanes(visit: Visit) -> list[ShownLane]:
    """All lanes, with what the person may see of them."""
    workers = await live_workers(visit)
    return [_shown(each, workers) for each in await lane_counts(visit)]


def _own(count: LaneCount, own: Mapping[PublicState, MatchCount]) -> LaneCount:
    """The lane with these counts instead of those of all namespaces."""
    counts = {
        state: 0 if PublicState(state) not in own else own[PublicState(state)].count
        for state in _COUNTED
    }
    oldest = count.oldest_waiting_since if counts["waiting"] == count.waiting else None
    return msgspec.structs.replace(
        count, **counts, blocked=0, oldest_waiting_since=oldest, left=sum(counts.values())
    )


class LaneRate(msgspec.Struct, frozen=True, kw_only=True):
    """What ended on a lane in the last half hour."""

    per_minute: float
    spark: str
    """A line of the minutes, as SVG."""


async def lane_rates(visit: Visit) -> dict[str, LaneRate]:
    """The rate of every lane on which something ended lately."""
    found = await visit.engine.read_lane_activity(window=_RATED, namespace=visit.namespace)
    rates: dict[str, LaneRate] = {}
    for lane_id, ended in found.items():
        caption = f"Executions that ended on {lane_id} in each minute of the last {length(_RATED)}"
        rates[lane_id] = LaneRate(
            per_minute=sum(ended) / len(ended),
            spark=sparkline(caption, "f-green", [float(each) for each in ended]),
        )
    return rates


async def lanes(visit: Visit) -> PageAnswer:
    """All lanes."""
    shown = await shown_lanes(visit)
    rates = await visit.shared("overview rates", lambda: lane_rates(visit))
    values = {"lanes": shown, "HUES": HUES, "ICONS": ICONS, "rates": rates}
    return PageAnswer(template="lanes.html", title="Lanes", section="lanes", values=values)


async def _lane(visit: Visit) -> LaneCount:
    name = visit.params["lane"]
    for each in await lane_counts(visit):
        if each.lane_id == name:
            return each
    raise not_found(f"There is no lane {name!r}.")


class LaneKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of the lane: how many wait, and the live workers that can run it."""

    name: str
    waiting: int
    more: bool
    workers: int


async def _kinds(
    visit: Visit, lane_id: str, workers: list[WorkerEntry], waiting: list[FoundExecution]
) -> list[LaneKind]:
    """The kinds that are served on the lane, or wait there; those that wait most first."""
    serving = [each for each in workers if each.alive and lane_id in each.lanes]
    names = {kind for each in serving for kind in each.kinds}
    names |= {each.execution_kind for each in waiting}
    shown: list[LaneKind] = []
    for name in sorted(names)[:_SHOWN]:
        search = Search(
            namespace=visit.namespace,
            lane_id=lane_id,
            execution_kinds=(name,),
            public_states=(PublicState.WAITING,),
        )
        found = await visit.engine.count_matching(search, at_most=1000)
        able = sum(name in each.kinds for each in serving)
        shown.append(LaneKind(name=name, waiting=found.count, more=found.more, workers=able))
    return sorted(shown, key=lambda each: (-each.waiting, each.name))


async def lane(visit: Visit) -> PageAnswer:
    """One lane: its oldest waiting and its longest running executions."""
    count = await _lane(visit)
    workers = await live_workers(visit)
    window = visit.chosen("window", WINDOWS)
    within = parse_length(window) or timedelta(hours=1)
    activity = await visit.engine.read_activity(
        window=within, steps=60, namespace=visit.namespace, lane_id=count.lane_id
    )
    waiting = await _of_state(visit, count.lane_id, PublicState.WAITING, "old")
    active = await _of_state(visit, count.lane_id, PublicState.ACTIVE, "long")
    values = {
        "lane": _shown(count, workers),
        "kinds": await _kinds(visit, count.lane_id, workers, waiting),
        "ended": ended_chart(activity, within),
        "times": times_chart(activity, within),
        "whole": activity.whole,
        "rate": sum(activity.whole.ended.values()) / (within.total_seconds() / 60),
        "window": window,
        "windows": WINDOWS,
        "effect": EFFECTS[count.lane_state],
        "waiting": waiting,
        "active": active,
        "serving": [each for each in workers if count.lane_id in each.lanes],
        "HUES": HUES,
        "ICONS": ICONS,
    }
    return PageAnswer(template="lane.html", title=count.lane_id, section="lanes", values=values)


async def _of_state(
    visit: Visit, lane_id: str, state: PublicState, sort: Literal["old", "long"]
) -> list[FoundExecution]:
    search = Search(namespace=visit.namespace, lane_id=lane_id, public_state=state, sort=sort)
    return (await visit.engine.search_executions(search, limit=_SHOWN)).executions


# Controls.


def _path(lane_id: str) -> str:
    return f"/lanes/{lane_id}"


def _control(word: str) -> tuple[Ask, Do]:
    """The dialog and the change of one control."""
    state, label, button = _CONTROLS[word]

    async def ask(visit: Visit) -> Dialog:
        count = await _lane(visit)
        warning = ""
        if word in ("pause", "disable") and count.waiting:
            warning = f"{count.waiting:,} executions wait on it, and will not be started."
        return Dialog(
            question=f"{label} the lane {count.lane_id}?",
            effect=EFFECTS[state],
            button=button,
            back=_path(count.lane_id),
            danger=word == "disable",
            seen=count.lane_state.value,
            now=f"The lane is {count.lane_state} now.",
            warning=warning,
        )

    async def do(visit: Visit, form: SentForm) -> ActDone:
        name = visit.params["lane"]
        await visit.engine.set_lane_state(name, state, actor=visit.actor, reason=form.reason())
        return ActDone(message=f"The lane {name} is {state}.")

    return ask, do


async def ask_retention(visit: Visit) -> Dialog:
    count = await _lane(visit)
    kept = count.retention
    return Dialog(
        question=f"How long does the lane {count.lane_id} keep what has ended?",
        effect="Executions that ended longer ago are deleted by a sweep, with their history.",
        button="Change retention",
        back=_path(count.lane_id),
        fields=[
            DialogField(
                name="retention",
                label="Kept for",
                value="" if kept is None else f"{round(kept.total_seconds() / 3600)}h",
                hint="Such as 12h or 30d; keep: for ever; empty: the default of the database.",
            )
        ],
    )


async def preview_retention(visit: Visit, form: SentForm) -> Preview:
    """How many executions the sweep would delete now."""
    given = form.text("retention").strip()
    older = DEFAULT_RETENTION if not given else parse_length(given)
    if given == "keep":
        return Preview(text="Nothing is deleted.")
    if older is None:
        raise FormProblem("retention", "must look like 12h or 30d")
    return Preview(text=await _trimmed(visit, older))


async def _trimmed(visit: Visit, older: timedelta) -> str:
    count = await visit.engine.count_trimmable(
        Trim(lane_id=visit.params["lane"], retention=older, namespace=visit.namespace)
    )
    return f"{count:,} executions ended more than {length(older)} ago."


async def preview_trim(visit: Visit, form: SentForm) -> Preview:
    """How many executions would be deleted."""
    older = parse_length(form.text("older").strip())
    if older is None:
        raise FormProblem("older", "must look like 12h or 30d")
    return Preview(text=await _trimmed(visit, older))


async def do_retention(visit: Visit, form: SentForm) -> ActDone:
    name, given = visit.params["lane"], form.text("retention").strip()
    wanted = None if given in ("", "keep") else parse_length(given)
    if given not in ("", "keep") and wanted is None:
        raise FormProblem("retention", "must look like 12h or 30d")
    await visit.engine.set_lane_retention(
        name, KEEP if given == "keep" else wanted, actor=visit.actor
    )
    return ActDone(message=f"The retention of {name} was changed.")


async def ask_trim(visit: Visit) -> Dialog:
    count = await _lane(visit)
    return Dialog(
        question=f"Delete old executions of {count.lane_id}?",
        effect="They are deleted for good, with their results and history.",
        button="Delete executions",
        back=_path(count.lane_id),
        fields=[
            DialogField(
                name="older", label="Ended longer ago than", value=visit.query("older") or "7d"
            )
        ],
        danger=True,
    )


async def do_trim(visit: Visit, form: SentForm) -> ActDone:
    name, older = visit.params["lane"], parse_length(form.text("older").strip())
    if older is None:
        raise FormProblem("older", "must look like 12h or 30d")
    trim = Trim(lane_id=name, retention=older, namespace=visit.namespace)
    deleted = 0
    while deleted < _MOST_TRIMMED:
        batch = await visit.engine.trim_retention(trim, batch_size=_BATCH, actor=visit.actor)
        deleted += batch
        if batch < _BATCH:
            break
    return ActDone(message=f"{deleted:,} executions of {name} were deleted.")


ROUTES: Final = (
    screen("/lanes", lanes),
    screen("/lanes/{lane}", lane),
    *(act(f"/lanes/{{lane}}/{word}", *_control(word), Scope.OPERATE_ALL) for word in _CONTROLS),
    act(
        "/lanes/{lane}/retention",
        ask_retention,
        do_retention,
        Scope.OPERATE_ALL,
        preview=preview_retention,
    ),
    act("/lanes/{lane}/trim", ask_trim, do_trim, Scope.OPERATE_ALL, preview=preview_trim),
)
