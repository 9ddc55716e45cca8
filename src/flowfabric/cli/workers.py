"""`ff workers`: list worker processes and their history; mark one as dead."""

from __future__ import annotations

from typing import Annotated

import typer

from flowfabric.cli.connection import ask
from flowfabric.cli.output import (
    AsJson,
    Cursor,
    DatabaseUrl,
    Limit,
    console,
    cut,
    escape,
    listing,
    moment,
    more,
    options_follow,
    print_json,
)
from flowfabric.client.identity import user_at_host
from flowfabric.engine.workers.heartbeat_worker import WorkerNotRegistered
from flowfabric.engine.workers.list_worker_events import WorkerEvent
from flowfabric.engine.workers.list_workers import WorkerEntry
from flowfabric.engine.workers.mark_worker_dead import STOPPED
from flowfabric.errors import NotFound
from flowfabric.states import WorkerEventKind

app = typer.Typer(help="List worker processes and their history.")


def _namespace(given: str) -> str:
    if not given:
        raise typer.BadParameter("must not be empty")
    return given


Namespace = Annotated[str, typer.Option(help="The namespace of the workers.", callback=_namespace)]


@app.callback(invoke_without_command=True)
def workers(
    context: typer.Context,
    database_url: DatabaseUrl = None,
    namespace: Namespace = "default",
    limit: Limit = 100,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List the registered worker processes; silent ones have missed their heartbeats."""
    if context.invoked_subcommand is not None:
        options_follow(context, as_json, cursor)
        return
    _list(database_url, namespace, limit, cursor, as_json)


@app.command("list")
def list_(
    database_url: DatabaseUrl = None,
    namespace: Namespace = "default",
    limit: Limit = 100,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List the registered worker processes; silent ones have missed their heartbeats."""
    _list(database_url, namespace, limit, cursor, as_json)


def _list(
    database_url: str | None, namespace: str, limit: int, cursor: str | None, as_json: bool
) -> None:
    page = ask(
        database_url, lambda engine: engine.list_workers(namespace, after=cursor, limit=limit)
    )
    if as_json:
        print_json(page)
        return
    shown = listing(
        page.workers,
        "worker_instance_id",
        "alive",
        "lanes",
        "concurrency",
        "capabilities",
        "stuck_threads",
        "last_heartbeat_at",
        "registered_at",
        "worker_id",
        alive=lambda entry: "yes" if entry.alive else "[red]no: silent[/]",
        stuck_threads=_stuck,
    )
    console.print(shown if page.workers else f"No workers in namespace {escape(repr(namespace))}.")
    more(page.next_cursor)


def _stuck(entry: WorkerEntry) -> str:
    """The stuck threads of a worker by kind, and which kinds it does not claim."""
    parts = [
        f"{count} stuck in {kind!r}{' (not claimed)' if kind in entry.unclaimed_kinds else ''}"
        for kind, count in entry.stuck_threads.items()
    ]
    if entry.loop_blocked:
        parts.append(f"its event loop was blocked for {entry.loop_blocked.total_seconds():.1f} s")
    return f"[yellow]{escape(', '.join(parts))}[/]" if parts else ""


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
        print_json({"events": events})
        return
    shown = listing(
        events,
        "at",
        "worker_instance_id",
        "event_kind",
        "reason",
        at=lambda event: moment(event.at),
        event_kind=lambda event: "stopped" if _is_stop(event) else event.event_kind.value,
        reason=lambda event: "" if _is_stop(event) else escape(cut(event.reason or "")),
    )
    console.print(shown if events else f"No worker events in namespace {escape(repr(namespace))}.")


def _is_stop(event: WorkerEvent) -> bool:
    """Did the process itself leave the registry, in an orderly stop?"""
    return event.event_kind is WorkerEventKind.MARKED_DEAD and event.reason == STOPPED


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
        lambda engine: engine.mark_worker_dead(
            worker, reason=stored_reason, namespace=namespace, actor=user_at_host()
        ),
    )
    if isinstance(answer, WorkerNotRegistered):
        raise NotFound("worker", worker)
    if as_json:
        print_json({"worker_instance_id": worker, "marked": True})
    else:
        console.print(f"marked dead: {escape(worker)}")
