"""Executions: a list with tabs by state, a filter in words, selection and export."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from flowfabric.audit import audit_now
from flowfabric.dashboard.answers import Answer, PageAnswer, download
from flowfabric.dashboard.pages.filters import (
    LIMITS,
    QUERIES,
    SINCES,
    ExecutionFilter,
    filter_of,
)
from flowfabric.dashboard.pages.queries import saved_chips
from flowfabric.dashboard.problems import PageProblem
from flowfabric.dashboard.table import screen
from flowfabric.dashboard.view.durations import between, iso
from flowfabric.dashboard.view.sentences import ENDED_STATES, OPEN_STATES
from flowfabric.dashboard.visit import Visit
from flowfabric.engine.executions.search_executions import FoundExecution
from flowfabric.errors import EngineError
from flowfabric.states import PublicState
from flowfabric.wire import wire

MOST_EXPORTED: Final = 10_000
_COUNTED: Final = 1_000
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


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
        "next": None if page.next_cursor is None else visit.again(cursor=page.next_cursor),
        "first": visit.again(cursor=None) if cursor else None,
        "tabs": await _tabs(visit, wanted),
        "wanted": wanted,
        "conditions": wanted.conditions(visit),
        "drops": await _drops(visit, wanted) if not page.executions and not cursor else [],
        "queries": [(label, visit.url("/executions", **query)) for label, query in QUERIES],
        "saved": [] if visit.region else await saved_chips(visit),
        "sinces": SINCES,
        "limit": str(limit),
        "limits": LIMITS,
        "shows_namespace": visit.namespace is None and len(await visit.namespaces()) > 1,
        "many": wanted.parameters(),
        "matching": await _count(visit, wanted) if page.next_cursor or cursor else "",
    }
    return PageAnswer(
        template="executions.html", title="Executions", section="executions", values=values
    )


async def _tabs(visit: Visit, wanted: ExecutionFilter) -> list[Tab]:
    """All, the open states with how many they have, and the ended ones."""
    everything = visit.again(state=None, cursor=None, sort=None)
    tabs = [Tab(label="All", href=everything, current=not wanted.states)]
    base = msgspec.structs.replace(wanted, states=(), sort="new")
    for state in (*OPEN_STATES, *ENDED_STATES):
        of_state = msgspec.structs.replace(base, states=(state,))
        count = "" if state.is_terminal else await _count(visit, of_state)
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


async def _count(visit: Visit, wanted: ExecutionFilter) -> str:
    found = await visit.engine.count_matching(wanted.search(visit), at_most=_COUNTED)
    return f"{found.count:,}+" if found.more else f"{found.count:,}"


async def _drops(visit: Visit, wanted: ExecutionFilter) -> list[tuple[str, str]]:
    """The conditions without which something is found."""
    found: list[tuple[str, str]] = []
    for name in (*wanted.texts, "states", "kinds", "tags", "since"):
        if name in wanted.texts:
            texts = {key: value for key, value in wanted.texts.items() if key != name}
            less = msgspec.structs.replace(wanted, texts=texts)
            parameter = name
        else:
            if not getattr(wanted, name):
                continue
            less = msgspec.structs.replace(wanted, **{name: "" if name == "since" else ()})
            parameter = name if name == "since" else name[:-1]
        counted = await visit.engine.count_matching(less.search(visit), at_most=100)
        if counted.count:
            number = f"{counted.count} or more" if counted.more else str(counted.count)
            found.append((f"{number} without {parameter}", visit.again(**{parameter: None})))
    return found


# Export.


async def _export(visit: Visit, wanted: ExecutionFilter) -> Answer:
    """At most 10,000 rows as a file; recorded in the audit log."""
    search, cursor = wanted.search(visit), None
    found: list[FoundExecution] = []
    while len(found) < MOST_EXPORTED:
        page = await visit.engine.search_executions(search, cursor=cursor, limit=1000)
        found += page.executions
        cursor = page.next_cursor
        if cursor is None:
            break
    audit_now("exported", principal=visit.actor, rows=len(found), filter=wanted.in_words(visit))
    if visit.query("format") == "json":
        data = msgspec.json.encode([wire(each) for each in found])
        return download(data, "executions.json", "application/json")
    return download(_csv(found).encode(), "executions.csv", "text/csv; charset=utf-8")


def _csv(found: Sequence[FoundExecution]) -> str:
    names = FoundExecution.__struct_fields__
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    for each in found:
        writer.writerow([_cell(getattr(each, name)) for name in names])
    return text.getvalue()


def _cell(value: object) -> str:
    """The value as text; what a spreadsheet would compute begins with an apostrophe."""
    if value is None:
        return ""
    if isinstance(value, dict):
        text = msgspec.json.encode(value).decode()
    else:
        text = iso(value) if isinstance(value, datetime) else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


ROUTES: Final = (screen("/executions", executions),)
