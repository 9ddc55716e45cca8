"""`ff events tail`: what happens, as it happens."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from enum import StrEnum
from typing import Annotated

import msgspec
import typer
from rich.markup import escape

from flowfabric.cli.connection import ask
from flowfabric.cli.output import AsJson, DatabaseUrl, console
from flowfabric.cli.submit import parse_tags
from flowfabric.engine.engine import Engine
from flowfabric.engine.events.completion_events import CompletionEvent
from flowfabric.engine.events.cursor import cursor_from_hex, cursor_to_hex, encode_cursor
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.lease_events import LeaseEvent
from flowfabric.engine.events.operator_events import OperatorEvent
from flowfabric.engine.events.subscribe import Subscription
from flowfabric.errors import StreamDisconnected, TransportError
from flowfabric.wire import wire

app = typer.Typer(help="Events: what happens, as it happens.", no_args_is_help=True)

AnyEvent = CompletionEvent | LeaseEvent | OperatorEvent


class OutboxChoice(StrEnum):
    """Which outbox to follow."""

    COMPLETION = "completion"
    LEASE = "lease"
    OPERATOR = "operator"


@app.callback()
def events() -> None:
    """Nothing is missed and nothing comes out of order within an execution."""


@app.command()
def tail(
    family: Annotated[
        OutboxChoice, typer.Argument(help="What to follow.")
    ] = OutboxChoice.COMPLETION,
    cursor: Annotated[
        str, typer.Option(help="Where an earlier tail ended, or `start`; from now if left out.")
    ] = "",
    namespace: Annotated[str | None, typer.Option(help="Only of this namespace.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only with area.name=value.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print events as they happen, one a line, until Ctrl-C; with --json one JSON object a line."""
    start = encode_cursor(0) if cursor == "start" else cursor_from_hex(cursor)
    wanted = EventFilter(
        namespace=namespace,
        tag=None if tag is None else next(iter(parse_tags([tag]).items())),
    )
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        ask(database_url, lambda engine: _tail(engine, family, start, wanted, limit, as_json))


async def _tail(
    engine: Engine,
    family: OutboxChoice,
    cursor: bytes,
    wanted: EventFilter,
    limit: int | None,
    as_json: bool,
) -> None:
    """Follow until `limit` events were shown; a lost connection is made up for."""
    shown, told = 0, False
    while True:
        try:
            async with await _subscribed(engine, family, cursor, wanted) as subscription:
                if not told:
                    sys.stderr.write(f"following {family.value} events\n")
                    sys.stderr.flush()
                told, cursor = True, subscription.cursor
                async for event in subscription:
                    _show(event, as_json)
                    shown += 1
                    if shown == limit:
                        return
        except StreamDisconnected as cut:
            cursor = cut.cursor
            await asyncio.sleep(0.2)
        except TransportError:
            if not told:
                raise
            await asyncio.sleep(1.0)


async def _subscribed(
    engine: Engine, family: OutboxChoice, cursor: bytes, wanted: EventFilter
) -> Subscription[CompletionEvent] | Subscription[LeaseEvent] | Subscription[OperatorEvent]:
    match family:
        case OutboxChoice.COMPLETION:
            return await engine.subscribe_completions(cursor, wanted)
        case OutboxChoice.LEASE:
            return await engine.subscribe_lease_history(cursor, wanted)
        case OutboxChoice.OPERATOR:
            return await engine.subscribe_operator_events(cursor, wanted)


def _show(event: AnyEvent, as_json: bool) -> None:
    if as_json:
        told = {**wire(event), "cursor": cursor_to_hex(event.cursor)}
        sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
        sys.stdout.flush()
        return
    match event:
        case CompletionEvent():
            what, who = event.outcome.value, f"{event.execution_kind} on {event.lane_id}"
        case LeaseEvent():
            why = f" ({event.reason.value})" if event.reason else ""
            what, who = f"{event.kind.value}{why}", f"by {event.worker_instance_id}"
        case OperatorEvent():
            why = f": {event.reason}" if event.reason else ""
            what, who = event.event_type.value, f"by {event.actor}{why} {event.details}"
    console.print(
        f"{event.at:%H:%M:%S} {what:<20} {event.execution_id or ''} {escape(who)}", soft_wrap=True
    )
