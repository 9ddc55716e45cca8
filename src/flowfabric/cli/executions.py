"""`ff executions list | show | history`; the commands that change are in `execution_controls`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, cast

import msgspec
import typer

from flowfabric.cli.connection import ask
from flowfabric.cli.explain import explain
from flowfabric.cli.options import Divergent, Id, takes_search
from flowfabric.cli.output import (
    AsJson,
    Cursor,
    DatabaseUrl,
    Limit,
    ago,
    coloured,
    console,
    counted,
    cut,
    escape,
    facts_text,
    lease_reason,
    listing,
    moment,
    more,
    print_json,
    table,
)
from flowfabric.cli.values import heading, shortened, shortened_start, value_text
from flowfabric.engine.engine import Engine
from flowfabric.engine.events.read_history import HistoryPage
from flowfabric.engine.executions.describe_execution import (
    CurrentAttempt,
    CurrentLease,
    CurrentSuspension,
    ExecutionBody,
    ExecutionSnapshot,
)
from flowfabric.engine.executions.list_attempts import Attempt
from flowfabric.engine.executions.search_executions import Search
from flowfabric.errors import NotFound
from flowfabric.expired_text import expired_text
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState
from flowfabric.wire import read_untyped, wire

app = typer.Typer(help="Find, show, cancel and replay executions.", no_args_is_help=True)
app.command("explain")(explain)


@app.command("list")
@takes_search
def list_(
    search: Search,
    divergent: Divergent = False,
    patch_missing: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Only unfinished ones of --kind that may not have ctx.patched(NAME).",
        ),
    ] = None,
    database_url: DatabaseUrl = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List executions, newest first: ff executions list --state failed --within 2h.

    Before the branch of a patch is removed from the code, no execution may be without the patch:
    ff executions list --kind KIND --patch-missing NAME.
    """
    wanted = msgspec.structs.replace(search, divergent=divergent, patch_missing=patch_missing)
    page = ask(
        database_url,
        lambda engine: engine.search_executions(wanted, cursor=cursor, limit=limit),
    )
    if as_json:
        print_json(page)
        return
    shown = listing(
        page.executions,
        "execution_id",
        "public_state",
        "execution_kind",
        "reason",
        "created_at",
        "lane_id",
        "total_attempt_count",
    )
    console.print(shown if page.executions else "No executions.")
    if patch_missing is not None:
        counts = counted(len(page.executions), "execution")
        before = "more than " if page.next_cursor else ""
        console.print(f"{before}{counts} without patch {escape(patch_missing)}")
    more(page.next_cursor)


@app.command()
def show(
    execution_id: Id,
    full: Annotated[bool, typer.Option("--full", help="Cut no long payload or result.")] = False,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show one execution: its payload, its result or error, and its attempts.

    With --json everything is printed in full; a payload or result that is neither JSON nor
    MessagePack is printed in base64.
    """
    wanted = ExecutionId.parse(execution_id)
    found, body, attempts, compensation = ask(
        database_url, lambda engine: _describe(engine, wanted)
    )
    facts = wire(found)
    del facts["body"]
    if as_json:
        print_json(
            facts
            | {
                "payload": read_untyped(body.payload, body.payload_encoding),
                "payload_encoding": body.payload_encoding,
                "result": read_untyped(body.result, body.result_encoding),
                "result_encoding": body.result_encoding,
                "traceback": body.traceback,
                "attempts": attempts,
                "compensation": compensation,
            }
        )
        return
    shown = table("", "")
    shown.show_header = False
    for name in facts:
        value = getattr(found, name)
        if name == "failure_reason" and value is not None:
            value = expired_text(value)
        text = _fact(value, full=full)
        if text:
            shown.add_row(f"[b]{name}[/b]", text)
    if compensation is not None:
        shown.add_row("[b]compensation[/b]", str(compensation))
    console.print(shown)
    _print_body(body, full=full)
    if attempts:
        _print_section("attempts")
        console.print(_attempts_table(attempts))


def _fact(value: object, *, full: bool) -> str:
    """One value of the snapshot as markup; empty if it says nothing."""
    match value:
        case None:
            return ""
        case PublicState():
            return coloured(value)
        case datetime():
            return f"{moment(value)} UTC ({ago(value)})"
        case CurrentAttempt():
            return f"{value.attempt_index + 1} ({value.attempt_id})"
        case CurrentLease():
            return escape(
                f"attempt {value.attempt_index + 1} on {value.worker_instance_id}, "
                f"expires {ago(value.expires_at)}, epoch {value.lease_epoch} ({value.lease_id})"
            )
        case CurrentSuspension():
            names = ", ".join(repr(each) for each in value.awaits_signals)
            awaits = f", awaits {names}" if names else ""
            times_out = "" if value.timeout_at is None else f", times out {ago(value.timeout_at)}"
            then = "" if value.timeout_at is None else f" ({value.timeout_behavior.value})"
            since = ago(value.suspended_at)
            return escape(f"{value.reason.value} ({since}){awaits}{times_out}{then}")
        case dict():
            return escape(facts_text(cast("dict[str, object]", value)))
        case list():
            return escape(", ".join(str(item) for item in cast("list[object]", value)))
        case _:
            return escape(shortened(str(wire(value)), full=full))


def _print_body(body: ExecutionBody, *, full: bool) -> None:
    payload = value_text(body.payload, body.payload_encoding, full=full)
    _print_section(heading("payload", body.payload, body.payload_encoding), payload)
    if body.result is not None:
        result = value_text(body.result, body.result_encoding, full=full)
        _print_section(heading("result", body.result, body.result_encoding), result)
    if body.traceback:
        trace = shortened_start(body.traceback.rstrip(), full=full)
        _print_section("traceback of the last attempt that ended", trace)


def _print_section(title: str, text: str | None = None) -> None:
    console.print(f"\n[b]{escape(title)}[/b]")
    if text is not None:
        console.print(escape(text), soft_wrap=True)


@app.command()
def history(
    execution_id: Id,
    database_url: DatabaseUrl = None,
    limit: Limit = 100,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show the history of one execution: submit, leases, signals, ends, and what operators did."""
    wanted = ExecutionId.parse(execution_id)
    page = ask(database_url, lambda engine: _history(engine, wanted, cursor, limit))
    if as_json:
        print_json({"events": page.entries, "next_cursor": page.next_cursor})
        return
    shown = listing(
        page.entries,
        "at",
        "event",
        "attempt",
        "reason",
        "details",
        "by",
        "epoch",
        at=lambda entry: f"{entry.at:%Y-%m-%d %H:%M:%S.%f}"[:-3],
        event=lambda entry: f"{entry.outbox} {entry.what}",
        attempt=lambda entry: "" if entry.attempt_index is None else str(entry.attempt_index + 1),
        reason=lambda entry: escape(
            lease_reason(entry.reason) if entry.outbox == "lease" else entry.reason or ""
        ),
        details=lambda entry: escape(facts_text(entry.details)),
        epoch=lambda entry: "" if entry.lease_epoch is None else str(entry.lease_epoch),
    )
    console.print(shown)
    more(page.next_cursor)


def _attempts_table(attempts: list[Attempt]) -> object:
    shown = table("attempt", "type", "outcome", "worker", "started", "took", "reason")
    for attempt in attempts:
        ran = None if attempt.ended_at is None else attempt.ended_at - attempt.started_at
        took = "" if ran is None else f"{ran.total_seconds():.3f} s"
        shown.add_row(
            str(attempt.attempt_index + 1),
            attempt.attempt_type.value,
            attempt.outcome.value if attempt.outcome else "running",
            escape(attempt.worker_instance_id),
            ago(attempt.started_at),
            took,
            escape(cut(attempt.failure_reason or "")),
        )
    return shown


async def _describe(
    engine: Engine, wanted: ExecutionId
) -> tuple[ExecutionSnapshot, ExecutionBody, list[Attempt], ExecutionId | None]:
    found = await engine.describe_execution(wanted, with_body=True)
    if found is None or found.body is None:
        raise NotFound("execution", wanted)
    attempts = await engine.list_attempts(wanted)
    return found, found.body, attempts, await engine.read_compensation(wanted)


async def _history(
    engine: Engine, wanted: ExecutionId, cursor: str | None, limit: int
) -> HistoryPage:
    page = await engine.read_history(wanted, cursor=cursor, limit=limit)
    if not page.entries and await engine.read_execution_state(wanted) is None:
        raise NotFound("execution", wanted)
    return page
