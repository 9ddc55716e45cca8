"""`ff workers`: which worker processes live, what became of them, and marking one dead."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from flowfabric.cli.connection import ask
from flowfabric.cli.output import (
    AsJson,
    DatabaseUrl,
    ago,
    console,
    options_follow,
    print_json,
    table,
)
from flowfabric.client.identity import user_at_host
from flowfabric.engine.workers.heartbeat_worker import WorkerNotRegistered
from flowfabric.errors import NotFound

app = typer.Typer(help="Worker processes: who lives, who came and went.")

Namespace = Annotated[str, typer.Option(help="The tenant scope.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="How many.")]


@app.callback(invoke_without_command=True)
def workers(
    context: typer.Context,
    database_url: DatabaseUrl = None,
    namespace: Namespace = "default",
    after: Annotated[str | None, typer.Option(help="Where the last page ended.")] = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Show the registered worker processes."""
    if context.invoked_subcommand is not None:
        options_follow(context, as_json, after)
        return
    page = ask(
        database_url, lambda engine: engine.list_workers(namespace, after=after, limit=limit)
    )
    if as_json:
        print_json(page)
        return
    shown = table("instance", "pool", "lanes", "offers", "slots", "since", "heartbeat", "")
    for entry in page.workers:
        shown.add_row(
            escape(entry.worker_instance_id),
            escape(entry.worker_id),
            escape(", ".join(entry.lanes)),
            escape(", ".join(entry.capabilities)),
            str(entry.concurrency),
            ago(entry.registered_at),
            ago(entry.last_heartbeat_at),
            "" if entry.alive else "[red]silent[/]",
        )
    console.print(shown if page.workers else f"No workers in namespace {namespace!r}.")
    if page.next_cursor:
        console.print(f"More: --after {page.next_cursor}", soft_wrap=True)


@app.command()
def history(
    worker: Annotated[str | None, typer.Argument(help="Only of this process.")] = None,
    database_url: DatabaseUrl = None,
    namespace: Namespace = "default",
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Show when worker processes came, were last heard of, and went; the newest first."""
    events = ask(
        database_url,
        lambda engine: engine.list_worker_events(namespace, worker_instance_id=worker, limit=limit),
    )
    if as_json:
        print_json(events)
        return
    shown = table("at", "instance", "what", "why")
    for event in events:
        shown.add_row(
            f"{event.at:%Y-%m-%d %H:%M:%S}",
            escape(event.worker_instance_id),
            event.event_kind.value,
            escape(event.reason or ""),
        )
    console.print(shown if events else f"No workers were seen in namespace {namespace!r}.")


@app.command()
def dead(
    worker: Annotated[str, typer.Argument(help="The process (instance id).")],
    reason: Annotated[str | None, typer.Option(help="Why; kept in its history.")] = None,
    database_url: DatabaseUrl = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> None:
    """Take a worker process off the list that is known to be gone; its leases lapse by time."""
    why = reason or f"marked dead by {user_at_host()}"
    answer = ask(
        database_url,
        lambda engine: engine.mark_worker_dead(worker, reason=why, namespace=namespace),
    )
    if isinstance(answer, WorkerNotRegistered):
        raise NotFound("worker", worker)
    if as_json:
        print_json({"worker_instance_id": worker, "marked": True})
    else:
        console.print(f"marked dead: {escape(worker)}")
