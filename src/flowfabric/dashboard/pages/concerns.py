"""What needs a person: sentences of the overview, worst first."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from flowfabric.dashboard.pages.settings import last_failures
from flowfabric.dashboard.view.durations import length
from flowfabric.dashboard.visit import Visit
from flowfabric.engine.workers.list_unserved_routes import UnservedRoute
from flowfabric.states import LaneState, ScheduleState

_LATE: Final = timedelta(minutes=1)
_REVIEWS: Final = 5
_KINDS: Final = 3
"""Of more kinds of one lane than these nobody wants a sentence each."""
_SENTENCES: Final = 20


class Concern(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs a person, in a sentence."""

    rank: int
    """The lowest is the worst."""
    text: str
    href: str
    hue: str = "amber"


async def concerns(visit: Visit) -> list[Concern]:
    """Everything that needs a person in the namespaces that the page looks at."""
    found = [
        *await _unserved(visit),
        *await _lanes(visit),
        *await _leases(visit),
        *await _questions(visit),
        *await _reviews(visit),
        *await _schedules(visit),
        *await _budgets(visit),
        *_health(visit),
    ]
    return sorted(found, key=lambda each: each.rank)


async def _unserved(visit: Visit) -> list[Concern]:
    """A sentence for each kind; one for the whole lane where many kinds have no worker."""
    by_lane: dict[tuple[str, tuple[str, ...]], list[UnservedRoute]] = {}
    for each in await visit.engine.list_unserved_routes(namespace=visit.namespace, limit=100):
        by_lane.setdefault((each.lane_id, tuple(each.missing_capabilities)), []).append(each)
    found: list[Concern] = []
    for (lane, missing), routes in by_lane.items():
        groups = [routes] if len(routes) > _KINDS else [[each] for each in routes]
        for group in groups:
            first, waiting = group[0], sum(each.waiting for each in group)
            kind = first.execution_kind if len(group) == 1 else ""
            said = kind or f"{len(group):,} kinds, such as {first.execution_kind},"
            text = f"No live worker can run {waiting:,} of {said} on lane {lane}"
            text += f": {', '.join(missing)} is missing" if missing else ""
            text += f", for {length(visit.now - min(each.since for each in group))}"
            href = visit.url("/executions", state="waiting", lane=lane, kind=kind)
            found.append(Concern(rank=1, text=text, href=href, hue="red"))
    return found[:_SENTENCES]


async def _lanes(visit: Visit) -> list[Concern]:
    found: list[Concern] = []
    for lane in await visit.engine.count_by_lane():
        if lane.lane_state is not LaneState.ACTIVE:
            by = f" by {lane.state_changed_by}" if lane.state_changed_by else ""
            since = lane.state_changed_at
            ago = f" for {length(visit.now - since)}" if since else ""
            why = f": {lane.state_reason}" if lane.state_reason else ""
            text = f"Lane {lane.lane_id} is {lane.lane_state}{ago}{by}{why}"
            found.append(Concern(rank=2, text=text, href=visit.url(f"/lanes/{lane.lane_id}")))
    return found


async def _leases(visit: Visit) -> list[Concern]:
    leases = await visit.engine.list_expired_leases(namespace=visit.namespace, limit=100)
    if not leases.leases:
        return []
    text = f"{len(leases.leases)} leases have expired and were not swept: do sweeps run?"
    href = visit.url("/settings", tab="doctor", run=1)
    return [Concern(rank=0, text=text, href=href, hue="red")]


async def _questions(visit: Visit) -> list[Concern]:
    page = await visit.engine.list_open_waitpoints(namespace=visit.namespace, limit=100)
    waiting = [
        each for each in page.waitpoints if each.expires_at is None or each.expires_at > visit.now
    ]
    if not waiting:
        return []
    count = len(waiting)
    oldest = length(visit.now - min(each.created_at for each in waiting))
    expiries = [each.expires_at for each in waiting if each.expires_at is not None]
    text = f"{count}{' or more' if page.next_cursor else ''}"
    text += f" approval{' is' if count == 1 else 's are'} open, the oldest for {oldest}"
    text += f"; the next expires in {length(min(expiries) - visit.now)}" if expiries else ""
    return [Concern(rank=3, text=text, href=visit.url("/approvals"), hue="violet")]


async def _reviews(visit: Visit) -> list[Concern]:
    found: list[Concern] = []
    for each in (await visit.engine.list_reviews(namespace=visit.namespace))[:_REVIEWS]:
        why = "its code no longer fits the journal" if each.divergent else "a timeout was escalated"
        text = f"{each.waiting:,} of {each.execution_kind} stopped for review: {why},"
        text += f" the first {length(visit.now - each.since)} ago"
        found.append(Concern(rank=2, text=text, href=visit.url("/approvals"), hue="red"))
    return found


async def _schedules(visit: Visit) -> list[Concern]:
    found: list[Concern] = []
    for namespace in (await visit.namespaces())[:20]:
        for each in (await visit.engine.list_schedules(namespace=namespace)).schedules:
            due = each.next_fire_at
            if each.state is ScheduleState.BROKEN:
                text = f"Schedule {each.name} is broken: {each.state_reason}"
            elif each.state is ScheduleState.ACTIVE and due and visit.now - due > _LATE:
                text = f"Schedule {each.name} should have fired {length(visit.now - due)} ago"
            else:
                continue
            href = visit.url(f"/schedules/{each.name}", ns=namespace)
            found.append(Concern(rank=2, text=text, href=href, hue="red"))
    return found


async def _budgets(visit: Visit) -> list[Concern]:
    """Budgets are shared by all namespaces: people of one namespace are not told of them."""
    if not visit.principal.everywhere:
        return []
    return [
        Concern(
            rank=2,
            text=f"Budget {each.scope_type} {each.scope_id} is used up"
            + (f"; it is reset in {length(reset - visit.now)}" if reset else ""),
            href=visit.url(f"/budgets/{each.budget_id}"),
        )
        for each in (await visit.engine.list_budgets(limit=200)).budgets
        if each.spent
        for reset in (each.next_reset_at,)
    ]


def _health(visit: Visit) -> list[Concern]:
    href = visit.url("/settings", tab="doctor", run=1)
    found = [
        Concern(
            rank=1,
            text=f"Events of {name} have waited for {length(age)} for a transaction to end",
            href=href,
        )
        for name, age in visit.engine.events.gap_ages().items()
        if age > 10
    ]
    failures = last_failures(visit.engine.pool.config.dsn)
    if failures:
        text = f"The doctor found {len(failures)} failures: {', '.join(failures[:3])}"
        found.append(Concern(rank=0, text=text, href=href, hue="red"))
    return found
