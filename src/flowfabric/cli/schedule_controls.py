"""`ff schedules`: pause, resume, trigger, backfill; and what an application defines: diff, sync."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from flowfabric.cli.connection import ask
from flowfabric.cli.loading import load_app
from flowfabric.cli.options import Reason, parse_instant
from flowfabric.cli.output import AsJson, DatabaseUrl, console, counted, escape, print_json, say
from flowfabric.cli.schedules import Name, Namespace, app, change
from flowfabric.client.identity import user_at_host
from flowfabric.engine.schedules.diff_schedules import ScheduleDiff
from flowfabric.engine.schedules.schedule import Schedule
from flowfabric.states import ScheduleOutcome

Application = Annotated[
    str, typer.Argument(metavar="MODULE:APP", help="The application, as shop.tasks:app.")
]
Start = Annotated[
    datetime,
    typer.Argument(metavar="START", help="2027-01-05T09:00:00Z.", parser=parse_instant),
]
End = Annotated[
    datetime, typer.Argument(metavar="END", help="Until before this.", parser=parse_instant)
]


@app.command()
def pause(
    name: Name,
    reason: Reason = None,
    namespace: Namespace = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Fire nothing until the schedule is resumed."""
    paused = ask(
        database_url, lambda engine: engine.pause_schedule(name, **change(namespace, reason))
    )
    say(paused, f"schedule {escape(name)} is paused", as_json)


@app.command()
def resume(
    name: Name,
    catch_up: Annotated[
        bool, typer.Option("--catch-up", help="Treat the pause as an outage.")
    ] = False,
    reason: Reason = None,
    namespace: Namespace = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Fire again, from the first instant after now."""
    resumed = ask(
        database_url,
        lambda engine: engine.resume_schedule(name, catch_up=catch_up, **change(namespace, reason)),
    )
    say(resumed, f"schedule {escape(name)} is {_next(resumed)}", as_json)


@app.command()
def trigger(
    name: Name,
    force: Annotated[
        bool, typer.Option("--force", help="Also while an earlier execution has not ended.")
    ] = False,
    reason: Reason = None,
    namespace: Namespace = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Fire the schedule once, now, whatever its state."""
    done = ask(
        database_url,
        lambda engine: engine.trigger_schedule(name, force=force, **change(namespace, reason)),
    )
    said = f"triggered {done.execution_id}"
    if done.outcome is ScheduleOutcome.SKIPPED:
        said = f"skipped: {escape(done.reason or '')}; fire all the same with --force"
    say(done, said, as_json)


@app.command()
def backfill(
    name: Name,
    start: Start,
    end: End,
    reason: Reason = None,
    namespace: Namespace = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Fire every instant from START until before END that was not fired, the oldest first."""
    done = ask(
        database_url,
        lambda engine: engine.backfill_schedule(name, start, end, **change(namespace, reason)),
    )
    said = f"created {counted(len(done.executions), 'execution')}"
    if done.already_fired:
        said += f"; {done.already_fired} had been fired before"
    elif not done.executions:
        said += ": the schedule has no instant in that time"
    say(done, said, as_json)


@app.command()
def diff(
    application: Application, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Show how the schedules of an application differ from those that are stored."""
    loaded = load_app(application)
    found = ask(
        database_url,
        lambda engine: engine.diff_schedules(
            loaded.schedule_definitions(), namespace=loaded.namespace
        ),
    )
    if as_json:
        print_json(found)
    else:
        _print_diff(found)


@app.command()
def sync(
    application: Application,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete those that it does not define any more.")
    ] = False,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Store the schedules as an application defines them. Pauses stay."""
    loaded = load_app(application)
    found = ask(
        database_url,
        lambda engine: engine.sync_schedules(
            loaded.schedule_definitions(),
            namespace=loaded.namespace,
            prune=prune,
            actor=user_at_host(),
        ),
    )
    if as_json:
        print_json(found)
        return
    _print_diff(found)
    if found.is_empty:
        return
    pruned = counted(len(found.orphans), "schedule") + (" deleted" if prune else " left alone")
    console.print(
        f"{len(found.missing)} created, {len(found.changed)} changed"
        + (f", {pruned}" if found.orphans else "")
    )


def _print_diff(found: ScheduleDiff) -> None:
    for name in found.missing:
        console.print(f"[green]missing[/] {escape(name)}", soft_wrap=True)
    for each in found.changed:
        for difference in each.changes:
            console.print(
                f"[yellow]changed[/] {escape(each.name)} {escape(str(difference))}", soft_wrap=True
            )
    for name in found.orphans:
        console.print(f"[red]orphan[/] {escape(name)}", soft_wrap=True)
    if found.is_empty:
        console.print("No differences.")


def _next(schedule: Schedule) -> str:
    if schedule.next_fire_at is None:
        return "finished: it has no further instant"
    return f"active and fires next at {schedule.next_fire_at:%Y-%m-%d %H:%M:%S} UTC"
