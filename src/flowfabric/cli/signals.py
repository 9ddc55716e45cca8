"""`ff signals list | send`: signals to executions, by name."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer

from flowfabric.app.codec import encode_untyped
from flowfabric.cli.connection import ask
from flowfabric.cli.options import Id, Namespace, Tag, parse_tag
from flowfabric.cli.output import (
    AsJson,
    DatabaseUrl,
    Limit,
    complain,
    console,
    listing,
    moment,
    more,
    print_json,
    say,
)
from flowfabric.client.identity import user_at_host
from flowfabric.engine.engine import Engine
from flowfabric.engine.events.cursor import cursor_from_hex, cursor_to_hex
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.suspensions.send_signal import NewSignal, SignalAnswer
from flowfabric.engine.suspensions.signal_answers import SignalDuplicate
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.states import SignalEffect
from flowfabric.wire import wire

app = typer.Typer(help="List signals, and send signals to executions.", no_args_is_help=True)


_EFFECTS: Final = {
    SignalEffect.RESUME_CONDITION_SATISFIED: "resumed",
    SignalEffect.APPENDED_TO_WAITPOINT: "appended",
    SignalEffect.BUFFERED_FOR_PENDING_WAITPOINT: "buffered",
    SignalEffect.BUFFERED_IN_INBOX: "buffered",
}


@app.command("list")
def list_(
    namespace: Namespace = None,
    tag: Tag = None,
    limit: Limit = 20,
    cursor: Annotated[
        str, typer.Option(help="Continue after the last page: the cursor that it printed.")
    ] = "",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the signals that executions have got, newest first, and what each did."""
    start = cursor_from_hex(cursor)
    wanted = EventFilter(namespace=namespace, tag=parse_tag(tag))
    page = ask(
        database_url,
        lambda engine: engine.list_events("signal", cursor=start, limit=limit, filter=wanted),
    )
    older = None if page.next_cursor is None else cursor_to_hex(page.next_cursor)
    if as_json:
        signals = [{**wire(event), "cursor": cursor_to_hex(event.cursor)} for event in page.events]
        print_json({"signals": signals, "next_cursor": older})
        return
    shown = listing(
        page.events,
        "signal_name",
        "execution_id",
        "effect",
        "at",
        "source_identity",
        "source_type",
        "waitpoint_id",
        at=lambda event: moment(event.at),
        effect=lambda event: _EFFECTS[event.effect],
    )
    console.print(shown if page.events else "No signals.")
    more(older)


@app.command()
def send(
    execution_id: Id,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="What the handler waits for: its name.")
    ],
    payload: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="What the handler gets, as JSON.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="What the handler gets, as text.")] = None,
    key: Annotated[
        str | None,
        typer.Option("--idempotency-key", "--key", help="The same key sends only once."),
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Send a signal: ff signals send ID approved '{"by": "ann"}'.

    The handler gets it from ctx.wait_for_signal(NAME). If it does not wait yet, the signal is kept.
    """
    wanted = ExecutionId.parse(execution_id)
    stored, encoding = encode_untyped(_payload(payload, text), field="payload")
    signal = NewSignal(
        execution_id=wanted,
        signal_name=name,
        payload=stored,
        encoding=encoding,
        source_type="operator",
        source_identity=user_at_host(),
        idempotency_key=key,
    )
    answer, awaited = ask(database_url, lambda engine: _send(engine, signal))
    if isinstance(answer, SignalDuplicate):
        said = f"{key} has sent a signal before, nothing was sent: {wanted}"
    else:
        effect = "which goes on" if answer.resumed else "which gets it when it waits for it"
        said = f"sent {name} to {wanted}, {effect}"
    say({"execution_id": wanted, "resumed": answer.resumed, **wire(answer)}, said, as_json)
    if awaited and not answer.duplicate and name not in awaited:
        names = ", ".join(repr(each) for each in awaited)
        complain(f"warning: the execution waits for {names}, not for {name!r}")


async def _send(engine: Engine, signal: NewSignal) -> tuple[SignalAnswer, list[str]]:
    """The answer, and the names of the signals that the execution waits for now."""
    answer = await engine.send_signal(signal)
    found = None if answer.resumed else await engine.describe_execution(signal.execution_id)
    suspension = None if found is None else found.current_suspension
    return answer, [] if suspension is None else suspension.awaits_signals


def _payload(given: str | None, text: str | None) -> object:
    if given is None:
        return text
    if text is not None:
        raise invalid_input("--text", text, "cannot be given together with PAYLOAD")
    try:
        return msgspec.json.decode(given)
    except msgspec.DecodeError as error:
        why = f"is not JSON: {error}; --text sends a text"
        raise invalid_input("PAYLOAD", given[:80], why) from None
