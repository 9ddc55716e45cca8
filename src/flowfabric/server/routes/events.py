"""Events: the newest of some families, or several families as they happen."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from flowfabric.api.forms import Wanted, form
from flowfabric.api.leaves import parse_execution_id
from flowfabric.engine.events.completion_events import CompletionEvent
from flowfabric.engine.events.cursor import decode_cursor, encode_cursor
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.lease_events import LeaseEvent
from flowfabric.engine.events.operator_events import OperatorEvent
from flowfabric.engine.events.signal_events import SignalEvent
from flowfabric.engine.events.subscribe import Subscription
from flowfabric.ids import parse_uuid
from flowfabric.server.asgi import cancel_all
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.pages import check_limit, link_to_next, tag_of
from flowfabric.server.problems import invalid
from flowfabric.server.sse import ServerEvent
from flowfabric.server.table import Kind, Route, route
from flowfabric.states import Scope

Family = Literal["completion", "lease", "operator", "signal"]
Event = CompletionEvent | LeaseEvent | OperatorEvent | SignalEvent
_LETTERS: Final[Mapping[str, str]] = {
    "completion": "c",
    "lease": "l",
    "operator": "o",
    "signal": "s",
}
_PLACE: Final = re.compile(r"([clos])([0-9a-f]{1,16})")
_EVENT: Final = form(Event, Wanted("out"))


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events: of some families, the newest first."""

    family: list[Family] = []
    """Completions, if none is given."""
    namespace: str | None = None
    tag: str | None = None
    """`key=value`"""
    execution: str | None = None
    flow: UUID | None = None
    lane: str | None = None
    kind: str | None = None
    worker: str | None = None
    actor: str | None = None
    type: list[str] = []
    """Types of events, outcomes of completions, or effects of signals: any of these."""
    since: datetime | None = None
    limit: int = 50
    cursor: str | None = None


class LiveEventsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events: of some families, after the cursor or from now on."""

    family: list[Family] = []
    """Completions, if none is given."""
    namespace: str | None = None
    tag: str | None = None
    execution: str | None = None
    flow: str | None = None
    lane: str | None = None
    kind: str | None = None
    cursor: str | None = None


class Events(msgspec.Struct, frozen=True, kw_only=True):
    """Events, the newest first."""

    items: list[Event]
    next_cursor: str | None


async def list_events(call: ApiCall, query: EventsQuery) -> Reply:
    """The newest events of some families; a page may be short and still have a cursor."""
    families = query.family or ["completion"]
    places = None if query.cursor is None else _places(query.cursor)
    if places is not None and not places.keys() & set(families):
        raise invalid("cursor", "is not a cursor of this list")
    execution = None if query.execution is None else parse_execution_id(query.execution)
    found = await call.engine.list_events_of(
        families,
        cursors=None
        if places is None
        else {family: encode_cursor(place) for family, place in places.items()},
        limit=check_limit(query.limit),
        since=query.since,
        filter=EventFilter(
            namespace=call.only(query.namespace),
            tag=tag_of(query.tag),
            lane_id=query.lane,
            execution_kind=query.kind,
            execution_id=execution,
            flow_id=query.flow,
            worker_instance_id=query.worker,
            actor=query.actor,
            types=tuple(query.type),
        ),
    )
    ends = {family: decode_cursor(end) for family, end in found.next_cursors.items()}
    cursor = _cursor(ends) or None
    value = Events(items=list(found.events), next_cursor=cursor)
    return Reply(value=value, headers=link_to_next(call, cursor, query))


def _places(cursor: str) -> dict[str, int]:
    """The place in each family; raises a `RequestProblem` for a text that is no cursor."""
    words = {letter: word for word, letter in _LETTERS.items()}
    found: dict[str, int] = {}
    for part in filter(None, cursor.split(".")):
        match = _PLACE.fullmatch(part)
        if match is None or int(match[2], 16) >= 2**63:
            raise invalid("cursor", "must look like c1f.l2a")
        found[words[match[1]]] = int(match[2], 16)
    return found


async def subscribe_events(call: ApiCall, query: LiveEventsQuery) -> AsyncGenerator[ServerEvent]:
    """Events as they happen, of several families in one stream; `id` resumes it without a gap."""
    cursor = call.header("last-event-id") or query.cursor or ""
    places = _places(cursor)
    wanted = EventFilter(namespace=call.only(query.namespace), tag=tag_of(query.tag))
    # Compared as texts with those of the events, so each is in the form that these have.
    if query.execution is not None:
        execution = str(parse_execution_id(query.execution))
        query = msgspec.structs.replace(query, execution=execution)
    if query.flow is not None:
        query = msgspec.structs.replace(query, flow=str(parse_uuid(query.flow, field="flow")))
    subscriptions: dict[str, Subscription[Any]] = {}
    try:
        for family in dict.fromkeys(query.family or ["completion"]):
            subscriptions[family] = await _subscribe(call, family, places.get(family), wanted)
    except BaseException:
        for each in subscriptions.values():
            await each.aclose()
        raise
    return _merged(subscriptions, query)


async def _subscribe(
    call: ApiCall, family: str, place: int | None, wanted: EventFilter
) -> Subscription[Any]:
    engine = call.engine
    subscribe = {
        "completion": engine.subscribe_completions,
        "lease": engine.subscribe_lease_history,
        "operator": engine.subscribe_operator_events,
        "signal": engine.subscribe_signal_delivery,
    }[family]
    return await subscribe(b"" if place is None else encode_cursor(place), wanted)


async def _merged(
    subscriptions: Mapping[str, Subscription[Any]], query: LiveEventsQuery
) -> AsyncGenerator[ServerEvent]:
    """The events of all subscriptions, each with the places after it as its id."""
    # What a subscription has read is not its place: an event may be waiting to be sent.
    places = {family: decode_cursor(each.cursor) for family, each in subscriptions.items()}
    yield ServerEvent(id=_cursor(places), event="", data=None)
    coming = {family: asyncio.ensure_future(anext(each)) for family, each in subscriptions.items()}
    try:
        while True:
            await asyncio.wait(coming.values(), return_when=asyncio.FIRST_COMPLETED)
            for family in [name for name, task in coming.items() if task.done()]:
                event = coming[family].result()
                coming[family] = asyncio.ensure_future(anext(subscriptions[family]))
                places[family] = event.event_id
                if _matches(event, query):
                    yield ServerEvent(id=_cursor(places), event=family, data=_EVENT.dumped(event))
    except StopAsyncIteration:
        return
    finally:
        await cancel_all(coming.values())
        for each in subscriptions.values():
            await each.aclose()


def _cursor(places: Mapping[str, int | None]) -> str:
    return ".".join(
        f"{_LETTERS[family]}{place:x}" for family, place in places.items() if place is not None
    )


def _matches(event: Any, query: LiveEventsQuery) -> bool:
    wanted = {
        "execution_id": query.execution,
        "flow_id": query.flow,
        "lane_id": query.lane,
        "execution_kind": query.kind,
    }
    return all(
        str(getattr(event, field, None)) == value
        for field, value in wanted.items()
        if value is not None
    )


ROUTES: Final[tuple[Route, ...]] = (
    route(
        "GET",
        "/v1/events",
        list_events,
        scope=Scope.READ,
        query=EventsQuery,
        answers={200: Events},
    ),
    route(
        "GET",
        "/v1/events/live",
        subscribe_events,
        scope=Scope.READ,
        query=LiveEventsQuery,
        answers={200: Event},
        kind=Kind.STREAM,
    ),
)
