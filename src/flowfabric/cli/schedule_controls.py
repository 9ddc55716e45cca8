"""`ff schedules`: update, pause, resume, trigger, backfill; and those of an app: diff, sync."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from flowfabric.app.limit import store_limits
from flowfabric.app.schedule import redefine_schedule
from flowfabric.cli.completion import complete_kind, complete_lane
from flowfabric.cli.connection import ask
from flowfabric.cli.loading import load_app
from flowfabric.cli.options import Reason, parse_instant, parse_tags
from flowfabric.cli.output import AsJson, DatabaseUrl, console, counted, escape, print_json, say
from flowfabric.cli.schedules import (
    At,
    CatchUpWindow,
    Cron,
    Every,
    Jitter,
    Name,
    Namespace,
    Runs,
    Starts,
    Tag,
    Tz,
    Until,
    app,
    change,
    json_bytes,
)
from flowfabric.client.identity import user_at_host
from flowfabric.client.schedules import change_schedule
from flowfabric.engine.engine import Engine
from flowfabric.engine.schedules.definition import ScheduleDefinition
from flowfabric.engine.schedules.diff_schedules import ScheduleDiff
from flowfabric.engine.schedules.schedule import Schedule
from flowfabric.errors import invalid_input
from flowfabric.states import ScheduleOutcome, ScheduleOverlap, ScheduleState

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
def update(
    name: Name,
    kind: Annotated[
        str | None, typer.Option(help="The kind of the task.", autocompletion=complete_kind)
    ] = None,
    payload: Annotated[
        str | None, typer.Option(metavar="JSON", help="The arguments of the task.")
    ] = None,
    cron: Cron = None,
    tz: Tz = None,
    every: Every = None,
    at: At = None,
    overlap: Annotated[
        ScheduleOverlap | None, typer.Option(help="While an earlier execution has not ended.")
    ] = None,
    catch_up: Annotated[
        int | None, typer.Option(help="How many missed instants are fired later.")
    ] = None,
    catch_up_window: CatchUpWindow = None,
    jitter: Jitter = None,
    starts: Starts = None,
    until: Until = None,
    runs: Runs = None,
    lane: Annotated[
        str | None, typer.Option(help="The lane of the executions.", autocompletion=complete_lane)
    ] = None,
    priority: Annotated[
        int | None, typer.Option(help="0 to 9000; higher is claimed first.")
    ] = None,
    tag: Tag = None,
    reason: Reason = None,
    namespace: Namespace = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Change what is given; the next instant is the first after now: ff schedules update NAME …"""
    options: dict[str, Any] = {
        "cron": cron, "tz": tz, "every": every, "at": at, "overlap": overlap,
        "catch_up": catch_up, "catch_up_window": catch_up_window, "jitter": jitter,
        "starts": starts, "until": until, "runs": runs, "lane": lane, "priority": priority,
        "tags": None if tag is None else parse_tags(tag),
    }  # fmt: skip
    task: dict[str, Any] = {}
    if kind is not None:
        task["execution_kind"] = kind
    if payload is not None:
        task |= {"input_payload": json_bytes(payload), "payload_encoding": "json"}
    if not task and all(value is None for value in options.values()):
        raise invalid_input("options", None, "are missing: name what changes, as --cron")

    def redefined(stored: ScheduleDefinition) -> ScheduleDefinition:
        return msgspec.structs.replace(redefine_schedule(stored, None, **options), **task)

    async def updated(engine: Engine) -> Schedule:
        return await change_schedule(
            lambda: engine.get_schedule(name, namespace=namespace),
            redefined,
            lambda wanted, revision: engine.update_schedule(
                wanted, revision=revision, reason=reason, actor=user_at_host()
            ),
        )

    changed = ask(database_url, updated)
    paused = "paused" if changed.state is ScheduleState.PAUSED else _next(changed)
    say(changed, f"schedule {name} is {paused}", as_json)


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
    say(paused, f"schedule {name} is paused", as_json)


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
    say(resumed, f"schedule {name} is {_next(resumed)}", as_json)


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
        said = f"skipped: {done.reason or ''}; fire all the same with --force"
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

    async def store(engine: Any) -> ScheduleDiff:
        await store_limits(engine, loaded.limits.values(), actor=user_at_host())
        return await engine.sync_schedules(
            loaded.schedule_definitions(),
            namespace=loaded.namespace,
            prune=prune,
            actor=user_at_host(),
        )

    found = ask(database_url, store)
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
