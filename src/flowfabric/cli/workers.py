"""`ff workers`: list worker processes and their history; mark one as dead."""

from __future__ import annotations

from typing import Annotated

import typer

from flowfabric.cli.connection import ask
from flowfabric.cli.output import (
    AsJson,
    DatabaseUrl,
    Limit,
    ago,
    console,
    escape,
    options_follow,
    print_json,
    table,
)
from flowfabric.client.identity import user_at_host
from flowfabric.engine.workers.heartbeat_worker import WorkerNotRegistered
from flowfabric.engine.workers.list_workers import WorkerEntry
from flowfabric.errors import NotFound

app = typer.Typer(help="List worker processes and their history.")

Namespace = Annotated[str, typer.Option(help="The namespace of the workers.")]


@app.callback(invoke_without_command=True)
def workers(
    context: typer.Context,
    database_url: DatabaseUrl = None,
    namespace: Namespace = "default",
    after: Annotated[
        str | None, typer.Option(help="Continue after the last page: the value it printed.")
    ] = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """List the registered worker processes; silent ones have missed their heartbeats."""
    if context.invoked_subcommand is not None:
        options_follow(context, as_json, after)
        return
    page = ask(
        database_url, lambda engine: engine.list_workers(namespace, after=after, limit=limit)
    )
    if as_json:
        print_json(page)
        return
    shown = table(
        "instance", "pool", "lanes", "capabilities", "concurrency", "since", "heartbeat", "status"
    )
    for entry in page.workers:
        status = "alive" if entry.alive else "[red]silent[/]"
        shown.add_row(
            escape(entry.worker_instance_id),
            escape(entry.worker_id),
            escape(", ".join(entry.lanes)),
            escape(", ".join(entry.capabilities)),
            str(entry.concurrency),
            ago(entry.registered_at),
            ago(entry.last_heartbeat_at),
            f"{status}{_stuck(entry)}",
        )
    console.print(shown if page.workers else f"No workers in namespace {escape(repr(namespace))}.")
    if page.next_cursor:
        console.print(f"More: --after {escape(page.next_cursor)}", soft_wrap=True)


def _stuck(entry: WorkerEntry) -> str:
    """The stuck threads of a worker by kind, and which kinds it does not claim."""
    parts = [
        f"{count} stuck in {kind!r}{' (not claimed)' if kind in entry.unclaimed_kinds else ''}"
        for kind, count in entry.stuck_threads.items()
    ]
    return f"\n[yellow]threads: {escape(', '.join(parts))}[/]" if parts else ""


@app.command()
def history(
    worker: Annotated[str | None, typer.Argument(help="Only this process (instance id).")] = None,
    database_url: DatabaseUrl = None,
    namespace: Namespace = "default",
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Show when worker processes registered, sent heartbeats and were removed; newest first."""
    events = ask(
        database_url,
        lambda engine: engine.list_worker_events(namespace, worker_instance_id=worker, limit=limit),
    )
    if as_json:
        print_json(events)
        return
    shown = table("time", "instance", "event", "reason")
    for event in events:
        shown.add_row(
            f"{event.at:%Y-%m-%d %H:%M:%S}",
            escape(event.worker_instance_id),
            event.event_kind.value,
            escape(event.reason or ""),
        )
    console.print(shown if events else f"No worker events in namespace {escape(repr(namespace))}.")


@app.command()
def dead(
    worker: Annotated[str, typer.Argument(help="The process (instance id).")],
    reason: Annotated[str | None, typer.Option(help="Why; stored in the history.")] = None,
    database_url: DatabaseUrl = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> None:
    """Remove a process that no longer runs from the list; its leases expire by themselves."""
    stored_reason = reason or f"marked dead by {user_at_host()}"
    answer = ask(
        database_url,
        lambda engine: engine.mark_worker_dead(worker, reason=stored_reason, namespace=namespace),
    )
    if isinstance(answer, WorkerNotRegistered):
        raise NotFound("worker", worker)
    if as_json:
        print_json({"worker_instance_id": worker, "marked": True})
    else:
        console.print(f"marked dead: {escape(worker)}")
