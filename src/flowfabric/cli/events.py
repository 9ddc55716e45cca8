"""`ff events list | tail`: the newest events, or events as they happen."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from enum import StrEnum
from typing import Annotated, Final

import typer

from flowfabric.cli.connection import ask
from flowfabric.cli.options import Namespace, Tag, parse_tag
from flowfabric.cli.output import (
    AsJson,
    DatabaseUrl,
    Limit,
    console,
    cut,
    escape,
    facts_text,
    json_text,
    lease_reason,
    listing,
    moment,
    more,
    print_json,
)
from flowfabric.engine.engine import Engine
from flowfabric.engine.events.completion_events import CompletionEvent
from flowfabric.engine.events.cursor import cursor_from_hex, cursor_to_hex, encode_cursor
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.lease_events import LeaseEvent, lease_word
from flowfabric.engine.events.operator_events import OperatorEvent
from flowfabric.engine.events.signal_events import SignalEvent
from flowfabric.engine.events.subscribe import Subscription
from flowfabric.errors import StreamDisconnected, TransportError
from flowfabric.states import OperatorEventType
from flowfabric.wire import wire

app = typer.Typer(help="List events, or follow them as they happen.", no_args_is_help=True)

AnyEvent = CompletionEvent | LeaseEvent | OperatorEvent | SignalEvent


class OutboxChoice(StrEnum):
    """The event tables that can be followed."""

    COMPLETION = "completion"
    LEASE = "lease"
    OPERATOR = "operator"
    SIGNAL = "signal"


@app.callback()
def events() -> None:
    """Makes `ff events` a group."""


Events = Annotated[
    OutboxChoice, typer.Argument(metavar="EVENTS", help="completion, lease, operator or signal.")
]

_FIELDS: Final = {
    OutboxChoice.COMPLETION: ("outcome", "execution_id", "execution_kind", "lane_id"),
    OutboxChoice.LEASE: ("kind", "execution_id", "worker_instance_id", "lease_epoch", "reason"),
    OutboxChoice.OPERATOR: ("event_type", "subject", "actor", "reason", "details"),
    OutboxChoice.SIGNAL: (
        "signal_name",
        "execution_id",
        "effect",
        "source_type",
        "source_identity",
    ),
}


@app.command("list")
def list_(
    outbox: Events = OutboxChoice.COMPLETION,
    namespace: Namespace = None,
    tag: Tag = None,
    limit: Limit = 20,
    cursor: Annotated[
        str, typer.Option(help="Continue after the last page: the cursor that it printed.")
    ] = "",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List events, newest first: ff events list operator --limit 5."""
    start = cursor_from_hex(cursor)
    wanted = EventFilter(namespace=namespace, tag=parse_tag(tag))
    page = ask(
        database_url,
        lambda engine: engine.list_events(outbox.value, cursor=start, limit=limit, filter=wanted),
    )
    older = None if page.next_cursor is None else cursor_to_hex(page.next_cursor)
    if as_json:
        events = [{**wire(event), "cursor": cursor_to_hex(event.cursor)} for event in page.events]
        print_json({"events": events, "next_cursor": older})
        return
    shown = listing(
        page.events,
        "at",
        *_FIELDS[outbox],
        at=lambda event: moment(event.at),
        kind=lambda event: lease_word(event.kind.value, event.reason),
        reason=lambda event: escape(cut(_reason(event))),
        subject=lambda event: escape(_subject(event)),
    )
    console.print(shown if page.events else f"No {outbox.value} events.")
    more(older)


@app.command()
def tail(
    outbox: Events = OutboxChoice.COMPLETION,
    cursor: Annotated[
        str,
        typer.Option(help="Continue after the event with this cursor; `start`: all. Default: now."),
    ] = "",
    namespace: Namespace = None,
    tag: Tag = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many events.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print events as they happen, one per line, until Ctrl-C.

    No event is missed, and those of one execution come in order. With --json, each line is a JSON
    object with a cursor.
    """
    start = encode_cursor(0) if cursor == "start" else cursor_from_hex(cursor)
    wanted = EventFilter(
        namespace=namespace,
        tag=parse_tag(tag),
    )
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        ask(database_url, lambda engine: _tail(engine, outbox, start, wanted, limit, as_json))


async def _tail(
    engine: Engine,
    outbox: OutboxChoice,
    cursor: bytes,
    wanted: EventFilter,
    limit: int | None,
    as_json: bool,
) -> None:
    """Follow until `limit` events were printed; reconnects after a lost connection."""
    printed, announced = 0, False
    while True:
        try:
            async with await _subscribe(engine, outbox, cursor, wanted) as subscription:
                if not announced:
                    sys.stderr.write(f"following {outbox.value} events\n")
                    sys.stderr.flush()
                announced, cursor = True, subscription.cursor
                async for event in subscription:
                    _print(event, as_json)
                    printed += 1
                    if printed == limit:
                        return
        except StreamDisconnected as disconnected:
            cursor = disconnected.cursor
            await asyncio.sleep(0.2)
        except TransportError:
            if not announced:
                raise
            await asyncio.sleep(1.0)


async def _subscribe(
    engine: Engine, outbox: OutboxChoice, cursor: bytes, wanted: EventFilter
) -> (
    Subscription[CompletionEvent]
    | Subscription[LeaseEvent]
    | Subscription[OperatorEvent]
    | Subscription[SignalEvent]
):
    match outbox:
        case OutboxChoice.COMPLETION:
            return await engine.subscribe_completions(cursor, wanted)
        case OutboxChoice.LEASE:
            return await engine.subscribe_lease_history(cursor, wanted)
        case OutboxChoice.OPERATOR:
            return await engine.subscribe_operator_events(cursor, wanted)
        case OutboxChoice.SIGNAL:
            return await engine.subscribe_signal_delivery(cursor, wanted)


def _subject(event: OperatorEvent) -> str:
    """What an operator changed: an execution, a flow, a lane or the like."""
    if event.execution_id is not None:
        return str(event.execution_id)
    if event.flow_id is not None:
        return f"flow {event.flow_id}"
    if event.event_type is OperatorEventType.LANE_STATE_CHANGED:
        return f"lane {event.details['lane_id']} is {event.details['new_state']}"
    return facts_text(event.details)


def _reason(event: LeaseEvent | OperatorEvent) -> str:
    return lease_reason(event.reason) if isinstance(event, LeaseEvent) else event.reason or ""


def _print(event: AnyEvent, as_json: bool) -> None:
    if as_json:
        fields = {**wire(event), "cursor": cursor_to_hex(event.cursor)}
        sys.stdout.write(json_text(fields) + "\n")
        sys.stdout.flush()
        return
    match event:
        case CompletionEvent():
            name, detail = event.outcome.value, f"{event.execution_kind} on {event.lane_id}"
        case LeaseEvent():
            reason = f" ({_reason(event)})" if event.reason else ""
            name = f"{lease_word(event.kind.value, event.reason)}{reason}"
            detail = f"by {event.worker_instance_id}"
        case OperatorEvent():
            reason = f": {event.reason}" if event.reason else ""
            name = event.event_type.value
            detail = f"by {event.actor}{reason} {facts_text(event.details)}"
        case SignalEvent():
            name = event.effect.value
            source = f"{event.source_type} {event.source_identity}".rstrip()
            detail = f"{event.signal_name} from {source}"
    console.print(
        f"{event.at:%H:%M:%S}Z {name:<20} {event.execution_id or ''} {escape(detail)}",
        soft_wrap=True,
    )
