"""Lanes: what waits and runs on each, and their controls."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.problems import FormProblem, not_found
from flowfabric.dashboard.table import ActDone, Ask, Dialog, DialogField, Do, act, screen
from flowfabric.dashboard.view.durations import length, parse_length
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.executions.search_executions import FoundExecution, Search
from flowfabric.engine.lanes.count_by_lane import LaneCount
from flowfabric.engine.lanes.set_lane_retention import KEEP
from flowfabric.engine.retention.trim import Trim
from flowfabric.engine.workers.list_workers import WorkerEntry
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
            return "the default"
        return "for ever" if kept.total_seconds() == KEEP else length(kept)


async def live_workers(visit: Visit) -> list[WorkerEntry]:
    """The workers of the namespaces that the page looks at."""
    found: list[WorkerEntry] = []
    for namespace in (await visit.namespaces())[:50]:
        found += (await visit.engine.list_workers(namespace)).workers
    return found


def _shown(count: LaneCount, workers: list[WorkerEntry]) -> ShownLane:
    serving = [each for each in workers if each.alive and count.lane_id in each.lanes]
    slots = sum(each.concurrency for each in serving)
    return ShownLane(count=count, workers=len(serving), slots=slots)


async def shown_lanes(visit: Visit) -> list[ShownLane]:
    """All lanes, with what the person may see of them."""
    workers = await live_workers(visit)
    counts = await visit.engine.count_by_lane()
    return [_shown(await _own(visit, each), workers) for each in counts]


async def _own(visit: Visit, count: LaneCount) -> LaneCount:
    """The lane with the executions of the namespace that is looked at, and of no other."""
    if visit.namespace is None:
        return count
    own: dict[str, int] = {}
    for state in _COUNTED:
        search = Search(
            namespace=visit.namespace, lane_id=count.lane_id, public_states=(PublicState(state),)
        )
        own[state] = (await visit.engine.count_matching(search, at_most=10_000)).count
    oldest = count.oldest_waiting_since if own["waiting"] == count.waiting else None
    return msgspec.structs.replace(
        count, **own, blocked=0, oldest_waiting_since=oldest, left=sum(own.values())
    )


async def lanes(visit: Visit) -> PageAnswer:
    """All lanes."""
    shown = await shown_lanes(visit)
    values = {"lanes": shown, "HUES": HUES, "ICONS": ICONS}
    return PageAnswer(template="lanes.html", title="Lanes", section="lanes", values=values)


async def _lane(visit: Visit) -> LaneCount:
    name = visit.params["lane"]
    for each in await visit.engine.count_by_lane():
        if each.lane_id == name:
            return each
    raise not_found(f"There is no lane {name!r}.")


async def lane(visit: Visit) -> PageAnswer:
    """One lane: its oldest waiting and its longest running executions."""
    count = await _own(visit, await _lane(visit))
    workers = await live_workers(visit)
    waiting = await _of_state(visit, count.lane_id, PublicState.WAITING)
    active = await _of_state(visit, count.lane_id, PublicState.ACTIVE)
    values = {
        "lane": _shown(count, workers),
        "effect": EFFECTS[count.lane_state],
        "waiting": sorted(waiting, key=lambda each: each.created_at)[:_SHOWN],
        "active": sorted(active, key=lambda each: each.started_at or each.created_at)[:_SHOWN],
        "serving": [each for each in workers if count.lane_id in each.lanes],
        "HUES": HUES,
        "ICONS": ICONS,
    }
    return PageAnswer(template="lane.html", title=count.lane_id, section="lanes", values=values)


async def _of_state(visit: Visit, lane_id: str, state: PublicState) -> list[FoundExecution]:
    search = Search(namespace=visit.namespace, lane_id=lane_id, public_state=state)
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
        reason=False,
    )


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
    older = parse_length(visit.query("older")) or timedelta(days=7)
    number = await visit.engine.count_trimmable(
        Trim(lane_id=count.lane_id, retention=older, namespace=visit.namespace)
    )
    return Dialog(
        question=f"Delete old executions of {count.lane_id}?",
        effect=f"{number:,} executions ended more than {length(older)} ago."
        " They are deleted for good, with their results and history.",
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
    act("/lanes/{lane}/retention", ask_retention, do_retention, Scope.OPERATE_ALL),
    act("/lanes/{lane}/trim", ask_trim, do_trim, Scope.OPERATE_ALL),
)
