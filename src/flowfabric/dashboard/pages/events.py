"""Events: what happened, newest first; those of operators are the audit trail."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from flowfabric.api.leaves import parse_execution_id
from flowfabric.dashboard.answers import Answer, PageAnswer, download_pieces
from flowfabric.dashboard.export_pages import export_pages
from flowfabric.dashboard.pages.event_subjects import subject
from flowfabric.dashboard.pages.filters import SINCES
from flowfabric.dashboard.problems import PageProblem
from flowfabric.dashboard.table import screen
from flowfabric.dashboard.view.durations import parse_length
from flowfabric.dashboard.view.sentences import state_word
from flowfabric.dashboard.view.tables import csv_pieces, json_pieces
from flowfabric.dashboard.visit import Visit
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.lease_events import lease_word
from flowfabric.engine.events.list_events_of import MergedEvents
from flowfabric.errors import EngineError
from flowfabric.ids import ExecutionId, parse_uuid
from flowfabric.states import CompletionOutcome, LeaseEventType, OperatorEventType, SignalEffect
from flowfabric.wire import wire

FAMILIES: Final = ("operator", "completion", "lease", "signal")
ALL: Final = "all"
WORDS: Final = {
    "operator": "Operators",
    "completion": "Ends",
    "lease": "Leases",
    "signal": "Signals",
    ALL: "All",
}
TYPES: Final[dict[str, tuple[str, ...]]] = {
    "operator": tuple(OperatorEventType),
    "completion": tuple(CompletionOutcome),
    "lease": tuple(LeaseEventType),
    "signal": tuple(SignalEffect),
}
_LIMIT: Final = 100
_HIDDEN: Final = frozenset({"cursor", "event_id", "namespace", "tags", "at", "execution_id"})


class ShownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as a row."""

    at: Any
    family: str
    what: str
    id: str
    """What the row is known by."""
    execution_id: ExecutionId | None
    flow_id: Any
    subject: tuple[str, str] | None
    """Path and name of what else it is about."""
    who: str
    why: str
    details: list[tuple[str, str]]


def _shown(event: Any) -> ShownEvent:
    family = type(event).__name__.removesuffix("Event").lower()
    what = {
        "operator": "event_type",
        "completion": "outcome",
        "lease": "kind",
        "signal": "signal_name",
    }[family]
    who = {"operator": "actor", "lease": "worker_instance_id", "signal": "source_identity"}
    details: dict[str, Any] = dict(getattr(event, "details", {}) or {})
    about = subject(details)
    for name in event.__struct_fields__:
        if name not in _HIDDEN and name not in (what, "actor", "reason", "details", "flow_id"):
            details.setdefault(name, getattr(event, name))
    return ShownEvent(
        at=event.at,
        family=family,
        what=state_word(
            lease_word(event.kind, event.reason) if family == "lease" else getattr(event, what)
        ),
        id=f"{family}-{event.event_id}",
        execution_id=event.execution_id,
        flow_id=getattr(event, "flow_id", None),
        subject=about,
        who=str(getattr(event, who.get(family, ""), "") or "") if family in who else "",
        why=str(getattr(event, "reason", None) or ""),
        details=[
            (state_word(key), str(value)) for key, value in details.items() if value is not None
        ],
    )


def _cursors(text: str) -> dict[str, bytes] | None:
    """Where each family goes on, as the address has it."""
    found: dict[str, bytes] = {}
    try:
        for part in filter(None, text.split("~")):
            name, _, cursor = part.partition(".")
            found[name] = bytes.fromhex(cursor)
    except ValueError:
        raise PageProblem(422, "The cursor is not one of this page.") from None
    return found or None


def _execution(text: str) -> ExecutionId | None:
    """The execution whose events are asked for."""
    try:
        return parse_execution_id(text) if text else None
    except EngineError:
        raise PageProblem(422, f"{text!r} is no id of an execution.") from None


class EventSearch(msgspec.Struct, frozen=True, kw_only=True):
    """What the page looks for, as the address says it."""

    families: Sequence[str]
    wanted: EventFilter
    since: datetime | None
    chosen: dict[str, str]
    """The conditions, by their parameters."""


def _search(visit: Visit) -> EventSearch:
    """Raises a `PageProblem` for a value that cannot be."""
    given = [each for each in visit.queries("family") if each in FAMILIES]
    families = list(FAMILIES) if visit.query("family") == ALL else given or ["operator"]
    since = parse_length(visit.query("since"))
    if visit.query("since") and since is None:
        raise PageProblem(422, f"since: {visit.query('since')!r} is no length such as 24h.")
    names = ("type", "actor", "execution", "flow", "lane", "since")
    chosen = {name: visit.query(name) for name in names if visit.query(name)}
    try:
        wanted = EventFilter(
            namespace=visit.namespace,
            lane_id=chosen.get("lane"),
            actor=chosen.get("actor"),
            execution_id=_execution(chosen.get("execution", "")),
            flow_id=parse_uuid(chosen["flow"], field="flow") if "flow" in chosen else None,
            types=tuple(visit.queries("type")),
        )
    except EngineError as error:
        raise PageProblem(422, str(error), kind=error.code) from None
    return EventSearch(
        families=families,
        wanted=wanted,
        since=None if since is None else visit.now - since,
        chosen=chosen,
    )


async def _page(
    visit: Visit, search: EventSearch, cursors: dict[str, bytes] | None, limit: int
) -> MergedEvents:
    try:
        return await visit.engine.list_events_of(
            search.families,
            cursors=cursors,
            limit=limit,
            filter=search.wanted,
            since=search.since,
        )
    except EngineError as error:
        raise PageProblem(422, str(error), kind=error.code) from None


async def events(visit: Visit) -> Answer:
    """The newest events of the chosen families."""
    search = _search(visit)
    if visit.query("format") in ("csv", "json"):
        return await _export(visit, search)
    page = await _page(visit, search, _cursors(visit.query("cursor")), _LIMIT)
    cursor = "~".join(f"{name}.{place.hex()}" for name, place in page.next_cursors.items())
    types = sorted({word for family in search.families for word in TYPES[family]})
    values = {
        "events": [_shown(each) for each in page.events],
        "families": FAMILIES,
        "words": WORDS,
        "chosen": ALL if len(search.families) > 1 else search.families[0],
        "given": search.chosen,
        "types": types,
        "sinces": SINCES,
        "next": visit.again(cursor=cursor) if cursor else None,
        "first": visit.again(cursor=None) if visit.query("cursor") else None,
    }
    return PageAnswer(template="events.html", title="Events", section="events", values=values)


async def _export(visit: Visit, search: EventSearch) -> Answer:
    """At most 10,000 events as a file; recorded in the audit log."""

    async def following(page: MergedEvents) -> MergedEvents | None:
        cursors = dict(page.next_cursors)
        return await _page(visit, search, cursors, 1000) if cursors else None

    pages = export_pages(
        visit,
        await _page(visit, search, None, 1000),
        rows=_events,
        following=following,
        words=str(search.chosen),
    )
    if visit.query("format") == "json":
        values = (map(wire, page) async for page in pages)
        return download_pieces(json_pieces(values), "events.json", "application/json")
    head = ("at", "family", "what", "execution_id", "flow_id", "who", "why", "details")
    rows = (
        [
            (e.at, e.family, e.what, e.execution_id, e.flow_id, e.who, e.why, dict(e.details))
            for e in map(_shown, page)
        ]
        async for page in pages
    )
    return download_pieces(csv_pieces(head, rows), "events.csv", "text/csv; charset=utf-8")


def _events(page: MergedEvents) -> Sequence[Any]:
    return page.events


ROUTES: Final = (screen("/events", events),)
