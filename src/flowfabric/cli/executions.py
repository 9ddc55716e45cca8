"""`ff executions list | show | history`; the commands that change are in `execution_controls`."""

from __future__ import annotations

from typing import Any

import typer

from flowfabric.cli.connection import ask
from flowfabric.cli.explain import explain
from flowfabric.cli.options import Id, takes_search
from flowfabric.cli.output import (
    AsJson,
    Cursor,
    DatabaseUrl,
    Limit,
    ago,
    coloured,
    console,
    cut,
    escape,
    listing,
    more,
    print_json,
    table,
)
from flowfabric.engine.engine import Engine
from flowfabric.engine.events.read_history import HistoryEntry
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.engine.executions.list_attempts import Attempt
from flowfabric.engine.executions.search_executions import Search
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId
from flowfabric.wire import read_untyped, wire

app = typer.Typer(help="Find, show, cancel and replay executions.", no_args_is_help=True)
app.command("explain")(explain)


@app.command("list")
@takes_search
def list_(
    search: Search,
    database_url: DatabaseUrl = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List executions, newest first: ff executions list --state failed --within 2h."""
    page = ask(
        database_url,
        lambda engine: engine.search_executions(search, cursor=cursor, limit=limit),
    )
    if as_json:
        print_json(page)
        return
    shown = listing(
        page.executions,
        "execution_id",
        "public_state",
        "execution_kind",
        "created_at",
        "reason",
        "lane_id",
        "total_attempt_count",
    )
    console.print(shown if page.executions else "No executions.")
    more(page.next_cursor)


@app.command()
def show(execution_id: Id, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one execution with its attempts and its result."""
    wanted = ExecutionId.parse(execution_id)
    found, attempts, result = ask(database_url, lambda engine: _describe(engine, wanted))
    if as_json:
        print_json({**wire(found), "attempts": attempts, "result": result})
        return
    facts = table("", "")
    for name, value in wire(found).items():
        if value not in (None, {}, []):
            text = coloured(found.public_state) if name == "public_state" else escape(str(value))
            facts.add_row(f"[b]{name}[/b]", text)
    if result is not None:
        facts.add_row("[b]result[/b]", escape(str(wire(result))))
    console.print(facts)
    if attempts:
        console.print(_attempts_table(attempts))


@app.command()
def history(execution_id: Id, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show the history of one execution: its leases, its ends, and what operators did."""
    wanted = ExecutionId.parse(execution_id)
    entries = ask(database_url, lambda engine: _history(engine, wanted))
    if as_json:
        print_json(entries)
        return
    shown = table("time", "event", "by", "attempt", "epoch", "reason", "details")
    for entry in entries:
        shown.add_row(
            f"{entry.at:%Y-%m-%d %H:%M:%S.%f}"[:-3],
            f"{entry.outbox} {entry.what}",
            escape(entry.by or ""),
            "" if entry.attempt_index is None else str(entry.attempt_index),
            "" if entry.lease_epoch is None else str(entry.lease_epoch),
            escape(entry.reason or ""),
            escape(", ".join(f"{name}={value}" for name, value in entry.details.items())),
        )
    console.print(shown if entries else "Nothing has happened to the execution yet.")


def _attempts_table(attempts: list[Attempt]) -> object:
    shown = table("attempt", "type", "outcome", "worker", "started", "took", "reason")
    for attempt in attempts:
        took = "" if attempt.ended_at is None else str(attempt.ended_at - attempt.started_at)
        shown.add_row(
            str(attempt.attempt_index),
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
) -> tuple[ExecutionSnapshot, list[Attempt], Any]:
    found = await engine.describe_execution(wanted)
    if found is None:
        raise NotFound("execution", wanted)
    attempts = await engine.list_attempts(wanted)
    outcome = (await engine.read_outcomes([wanted])).get(wanted)
    if outcome is None:
        return found, attempts, None
    return found, attempts, read_untyped(outcome.result, outcome.result_encoding)


async def _history(engine: Engine, wanted: ExecutionId) -> list[HistoryEntry]:
    entries = await engine.read_history(wanted)
    if not entries and await engine.read_execution_state(wanted) is None:
        raise NotFound("execution", wanted)
    return entries
