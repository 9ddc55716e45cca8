"""Events: what happened, newest first; those of operators are the audit trail."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flowfabric.api.leaves import parse_execution_id
from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.problems import PageProblem
from flowfabric.dashboard.table import screen
from flowfabric.dashboard.view.durations import parse_length
from flowfabric.dashboard.view.sentences import state_word
from flowfabric.dashboard.visit import Visit
from flowfabric.engine.events.filters import EventFilter
from flowfabric.errors import EngineError
from flowfabric.ids import ExecutionId

FAMILIES: Final = ("operator", "completion", "lease", "signal")
_LIMIT: Final = 100
_HIDDEN: Final = frozenset({"cursor", "event_id", "namespace", "tags", "at", "execution_id"})


class ShownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as a row."""

    at: Any
    family: str
    what: str
    execution_id: ExecutionId | None
    flow_id: Any
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
    for name in event.__struct_fields__:
        if name not in _HIDDEN and name not in (what, "actor", "reason", "details", "flow_id"):
            details.setdefault(name, getattr(event, name))
    return ShownEvent(
        at=event.at,
        family=family,
        what=state_word(getattr(event, what)),
        execution_id=event.execution_id,
        flow_id=getattr(event, "flow_id", None),
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


async def events(visit: Visit) -> PageAnswer:
    """The newest events of the chosen families."""
    families = [each for each in visit.queries("family") if each in FAMILIES] or ["operator"]
    since = parse_length(visit.query("since"))
    try:
        page = await visit.engine.list_events_of(
            families,
            cursors=_cursors(visit.query("cursor")),
            limit=_LIMIT,
            filter=EventFilter(
                namespace=visit.namespace,
                lane_id=visit.query("lane") or None,
                actor=visit.query("actor") or None,
                execution_id=_execution(visit.query("execution")),
            ),
            since=None if since is None else visit.now - since,
        )
    except EngineError as error:
        raise PageProblem(422, str(error), kind=error.code) from None
    cursor = "~".join(f"{name}.{place.hex()}" for name, place in page.next_cursors.items())
    values = {
        "events": [_shown(each) for each in page.events],
        "families": FAMILIES,
        "chosen": families,
        "next": visit.again(cursor=cursor) if cursor and len(page.events) == _LIMIT else None,
        "first": visit.again(cursor=None) if visit.query("cursor") else None,
    }
    return PageAnswer(template="events.html", title="Events", section="events", values=values)


ROUTES: Final = (screen("/events", events),)
