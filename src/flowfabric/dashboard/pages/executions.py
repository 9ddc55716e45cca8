"""Executions: a list with tabs by state, a filter in words, selection and export."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

import msgspec

from flowfabric.dashboard.answers import Answer, PageAnswer, download_pieces
from flowfabric.dashboard.export_pages import export_pages
from flowfabric.dashboard.pages.filters import (
    LIMITS,
    QUERIES,
    SINCES,
    ExecutionFilter,
    columns_of,
    filter_of,
)
from flowfabric.dashboard.pages.queries import saved_chips
from flowfabric.dashboard.problems import PageProblem
from flowfabric.dashboard.table import screen
from flowfabric.dashboard.view.durations import between
from flowfabric.dashboard.view.sentences import ENDED_STATES, OPEN_STATES
from flowfabric.dashboard.view.tables import csv_pieces, json_pieces
from flowfabric.dashboard.visit import Visit
from flowfabric.engine.executions.count_by_state import in_all_lanes
from flowfabric.engine.executions.count_matching import MatchCount
from flowfabric.engine.executions.search_executions import FoundExecution, SearchPage
from flowfabric.errors import EngineError
from flowfabric.states import PublicState
from flowfabric.wire import wire

_COUNTED: Final = 1_000


class ListedExecution(msgspec.Struct, frozen=True, kw_only=True):
    """An execution of the list."""

    found: FoundExecution
    waited: float | None
    """Seconds before it began; None while it waits."""
    ran: float | None
    """Seconds from its first start to its end; None while it runs or waits."""


class Tab(msgspec.Struct, frozen=True, kw_only=True):
    """The list of one state, and how many it has."""

    label: str
    href: str
    current: bool
    count: str = ""


def row_of(found: FoundExecution) -> ListedExecution:
    """The execution with how long it waited and ran."""
    return ListedExecution(
        found=found,
        waited=between(found.created_at, found.started_at),
        ran=between(found.started_at, found.terminal_at),
    )


async def executions(visit: Visit) -> Answer:
    """The list, or its export."""
    wanted = filter_of(visit)
    if visit.query("format") in ("csv", "json"):
        return await _export(visit, wanted)
    cursor, limit = visit.query("cursor") or None, int(visit.chosen("limit", LIMITS))
    try:
        page = await visit.engine.search_executions(
            wanted.search(visit), cursor=cursor, limit=limit
        )
    except EngineError as error:
        raise PageProblem(422, str(error), kind=error.code) from None
    values = {
        "rows": [row_of(each) for each in page.executions],
        "next": None if page.next_cursor is None else _older(visit, wanted, page.next_cursor),
        "first": visit.again(cursor=None) if cursor else None,
        "tabs": await _tabs(visit, wanted),
        "wanted": wanted,
        "conditions": wanted.conditions(visit),
        "drops": await _drops(visit, wanted) if not page.executions and not cursor else [],
        "queries": [(label, visit.url("/executions", **query)) for label, query in QUERIES],
        "saved": [] if visit.region else await saved_chips(visit),
        "lane_url": functools.cache(functools.partial(_lane_url, visit)),
        "sinces": SINCES,
        "cols": columns_of(visit),
        "limit": str(limit),
        "limits": LIMITS,
        "shows_namespace": visit.namespace is None and len(await visit.namespaces()) > 1,
        "many": wanted.parameters(),
        "matching": await _matching(visit, wanted) if page.next_cursor or cursor else "",
    }
    return PageAnswer(
        template="executions.html", title="Executions", section="executions", values=values
    )


def _lane_url(visit: Visit, lane: str) -> str:
    return visit.again(lane=lane, cursor=None)


def _older(visit: Visit, wanted: ExecutionFilter, cursor: str) -> str:
    """The next page: what is older than some time ago stays so by the time of this page."""
    before = wanted.earlier_than(visit)
    return visit.again(cursor=cursor, before=None if before is None else before.isoformat())


async def _tabs(visit: Visit, wanted: ExecutionFilter) -> list[Tab]:
    """All, the open states with how many they have, and the ended ones."""
    everything = visit.again(state=None, cursor=None, sort=None)
    tabs = [Tab(label="All", href=everything, current=not wanted.states)]
    counts = await _open_counts(visit, wanted)
    ended = await _ended_counts(visit, wanted)
    for state in (*OPEN_STATES, *ENDED_STATES):
        count = ended.get(state, "") if state.is_terminal else _number(counts[state])
        rare = (PublicState.RESUMABLE, PublicState.RATE_LIMITED, PublicState.SKIPPED)
        if count == "0" and state in rare and state not in wanted.states:
            continue
        tabs.append(
            Tab(
                label=state.value.replace("_", " "),
                href=visit.again(state=state.value, cursor=None, sort=None),
                current=wanted.states == (state,),
                count=count,
            )
        )
    return tabs


def _number(found: MatchCount) -> str:
    return f"{found.count:,}+" if found.more else f"{found.count:,}"


async def _open_counts(visit: Visit, wanted: ExecutionFilter) -> Mapping[PublicState, MatchCount]:
    """How many each open state has; in one statement unless more than the route is asked for."""
    base = msgspec.structs.replace(wanted, states=(), sort="new")
    if not wanted.is_by_route:
        return {
            state: await _count(visit, msgspec.structs.replace(base, states=(state,)))
            for state in OPEN_STATES
        }

    async def read() -> Mapping[PublicState, MatchCount]:
        lanes = await visit.engine.count_by_state(
            namespace=visit.namespace,
            lane_id=wanted.texts.get("lane"),
            execution_kinds=wanted.kinds,
            at_most=_COUNTED,
        )
        return in_all_lanes(lanes)

    lane = wanted.texts.get("lane", "")
    return await visit.shared("open", read, lane, *sorted(wanted.kinds))


async def _ended_counts(visit: Visit, wanted: ExecutionFilter) -> Mapping[PublicState, str]:
    """How many ended in each way in the window; nothing if more than the route is asked for."""
    within = wanted.ended_within
    if within is None:
        return {}

    async def read() -> Mapping[PublicState, str]:
        found = await visit.engine.count_ended(
            window=within,
            namespace=visit.namespace,
            lane_id=wanted.texts.get("lane"),
            execution_kinds=wanted.kinds,
        )
        return {
            state: f"{found.get('success' if state is PublicState.COMPLETED else state, 0):,}"
            for state in ENDED_STATES
        }

    lane = wanted.texts.get("lane", "")
    return await visit.shared("ended", read, str(within), lane, *sorted(wanted.kinds))


async def _matching(visit: Visit, wanted: ExecutionFilter) -> str:
    """How many there are on all pages."""
    [alone] = wanted.states if len(wanted.states) == 1 else (None,)
    if alone is not None and not alone.is_terminal and wanted.is_by_route:
        return _number((await _open_counts(visit, wanted))[alone])

    async def read() -> str:
        return _number(await _count(visit, wanted))

    return await visit.shared("matching", read, urlencode(wanted.parameters(), doseq=True))


async def _count(visit: Visit, wanted: ExecutionFilter) -> MatchCount:
    return await visit.engine.count_matching(wanted.search(visit), at_most=_COUNTED)


async def _drops(visit: Visit, wanted: ExecutionFilter) -> list[tuple[str, str]]:
    """The conditions without which something is found."""
    found: list[tuple[str, str]] = []
    for name in (*wanted.texts, "states", "kinds", "tags", "since", "before", "unserved"):
        if name in wanted.texts:
            texts = {key: value for key, value in wanted.texts.items() if key != name}
            less = msgspec.structs.replace(wanted, texts=texts)
            parameter = name
        else:
            if not getattr(wanted, name):
                continue
            kept = {"since": "", "before": "", "unserved": False}
            less = msgspec.structs.replace(wanted, **{name: kept.get(name, ())})
            parameter = name if name in kept else name[:-1]
        counted = await visit.engine.count_matching(less.search(visit), at_most=100)
        if counted.count:
            number = f"{counted.count} or more" if counted.more else str(counted.count)
            found.append((f"{number} without {parameter}", visit.again(**{parameter: None})))
    return found


# Export.


async def _export(visit: Visit, wanted: ExecutionFilter) -> Answer:
    """At most 10,000 rows as a file; recorded in the audit log."""
    search = wanted.search(visit)

    async def following(page: SearchPage) -> SearchPage | None:
        if page.next_cursor is None:
            return None
        return await visit.engine.search_executions(search, cursor=page.next_cursor, limit=1000)

    pages = export_pages(
        visit,
        await visit.engine.search_executions(search, limit=1000),
        rows=_executions,
        following=following,
        words=wanted.in_words(visit),
    )
    if visit.query("format") == "json":
        values = (map(wire, page) async for page in pages)
        return download_pieces(json_pieces(values), "executions.json", "application/json")
    names = FoundExecution.__struct_fields__
    rows = ([[getattr(each, name) for name in names] for each in page] async for page in pages)
    return download_pieces(csv_pieces(names, rows), "executions.csv", "text/csv; charset=utf-8")


def _executions(page: SearchPage) -> list[FoundExecution]:
    return page.executions


ROUTES: Final = (screen("/executions", executions),)
