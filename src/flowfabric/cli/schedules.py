"""`ff schedules`: list, show, preview, create and delete schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypedDict
from zoneinfo import ZoneInfo

import msgspec
import typer

from flowfabric.cli.completion import complete_kind, complete_lane
from flowfabric.cli.confirm import Yes, confirmed
from flowfabric.cli.connection import ask
from flowfabric.cli.options import Reason, parse_duration, parse_instant, parse_tags
from flowfabric.cli.output import (
    AsJson,
    Cursor,
    DatabaseUrl,
    Limit,
    ago,
    console,
    escape,
    listing,
    more,
    options_follow,
    print_json,
    say,
    table,
)
from flowfabric.client.identity import user_at_host
from flowfabric.engine.schedules.definition import ScheduleDefinition
from flowfabric.engine.schedules.explain_schedule import ScheduleExplanation, UpcomingInstant
from flowfabric.engine.schedules.list_schedule_fires import ScheduleFire
from flowfabric.engine.schedules.schedule import Schedule
from flowfabric.errors import invalid_input
from flowfabric.instants import epoch_ms, instant
from flowfabric.pages import check_limit
from flowfabric.schedules.next_after import next_instants
from flowfabric.schedules.spec import ScheduleSpec, spec_of
from flowfabric.states import ScheduleOverlap, ScheduleState

app = typer.Typer(
    help="Schedules: list, show, create, update, pause, trigger, backfill, preview, sync, delete."
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the schedule.")]
Namespace = Annotated[str, typer.Option(help="The namespace of the schedule.")]
Cron = Annotated[
    str | None,
    typer.Option(
        help="When: 5 fields, or 6 with seconds first; or @hourly, @daily, ….", metavar="CRON"
    ),
]
Tz = Annotated[str | None, typer.Option(help="Time zone of --cron: Europe/Berlin.", metavar="ZONE")]
Every = Annotated[
    timedelta | None,
    typer.Option(help="Interval: 90s, 15m, 12h.", metavar="DURATION", parser=parse_duration),
]
At = Annotated[
    datetime | None,
    typer.Option(help="Once, at 2027-01-05T09:00:00Z.", metavar="INSTANT", parser=parse_instant),
]
CatchUpWindow = Annotated[
    timedelta | None,
    typer.Option(
        help="Older ones are not: 1d if not given.", metavar="DURATION", parser=parse_duration
    ),
]
Jitter = Annotated[
    timedelta | None,
    typer.Option(
        help="Delay each execution by less than this.", metavar="DURATION", parser=parse_duration
    ),
]
Starts = Annotated[
    datetime | None, typer.Option(help="Not before this.", metavar="INSTANT", parser=parse_instant)
]
Until = Annotated[
    datetime | None, typer.Option(help="Not after this.", metavar="INSTANT", parser=parse_instant)
]
Runs = Annotated[int | None, typer.Option(help="Finished after so many firings.")]
Tag = Annotated[list[str] | None, typer.Option(help="A tag, area.name=value; repeat for more.")]
_SHOWN = 10


class Change(TypedDict):
    """What every change of a schedule is told: where it is, who changes it, and why."""

    namespace: str
    reason: str | None
    actor: str


def change(namespace: str, reason: str | None) -> Change:
    """A change by the user of this command."""
    return {"namespace": namespace, "reason": reason, "actor": user_at_host()}


@app.callback(invoke_without_command=True)
def schedules(
    context: typer.Context, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """List schedules: when each fires next, and what it did so far."""
    if context.invoked_subcommand is not None:
        options_follow(context, as_json, database_url)
        return
    _list(database_url, None, "default", 100, None, as_json)


@app.command("list")
def list_(
    state: Annotated[ScheduleState | None, typer.Option(help="Only in this state.")] = None,
    namespace: Namespace = "default",
    limit: Limit = 100,
    cursor: Cursor = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List schedules: when each fires next, and what it did so far."""
    _list(database_url, state, namespace, limit, cursor, as_json)


def _list(
    database_url: str | None,
    state: ScheduleState | None,
    namespace: str,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    page = ask(
        database_url,
        lambda engine: engine.list_schedules(
            namespace=namespace, state=state, cursor=cursor, limit=limit
        ),
    )
    if as_json:
        rows = [_fields(each) for each in page.schedules]
        print_json({"schedules": rows, "next_cursor": page.next_cursor})
        return
    shown = listing(
        page.schedules,
        "name",
        "state",
        "spec",
        "execution_kind",
        "next_fire_at",
        "last_fire_at",
        "fired",
        "skipped",
        "missed",
        state=_state,
        spec=lambda each: escape(str(each.definition.spec)),
        execution_kind=lambda each: escape(each.definition.execution_kind),
        next_fire_at=lambda each: (
            ago(each.next_fire_at) if each.state is ScheduleState.ACTIVE else ""
        ),
        skipped=lambda each: str(each.skipped or ""),
        missed=lambda each: str(each.missed or ""),
    )
    none = "No schedules: define one with @app.schedule, or create one with ff schedules create."
    if state is not None:
        none = f"No schedules are {state}."
    console.print(shown if page.schedules else none, soft_wrap=not page.schedules)
    more(page.next_cursor)


def _fields(schedule: Schedule) -> dict[str, Any]:
    """A schedule for JSON: its definition and its state, side by side as in the table."""
    stored = msgspec.structs.asdict(schedule)
    return {**msgspec.structs.asdict(stored.pop("definition")), **stored}


@app.command()
def show(
    name: Name,
    namespace: Namespace = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show one schedule: when it fires next, what is in its way, and what it did last."""

    async def read(engine: Any) -> tuple[Schedule, ScheduleExplanation, list[ScheduleFire]]:
        return (
            await engine.get_schedule(name, namespace=namespace),
            await engine.explain_schedule(name, namespace=namespace),
            await engine.list_schedule_fires(name, namespace=namespace, limit=_SHOWN),
        )

    schedule, explanation, fires = ask(database_url, read)
    if as_json:
        print_json({"schedule": _fields(schedule), "explanation": explanation, "history": fires})
        return
    definition = schedule.definition
    console.print(f"[b]{escape(name)}[/b]: {escape(explanation.spec)}, {_state(schedule)}")
    console.print(
        f"  executes {escape(definition.execution_kind)} on lane {escape(definition.lane_id)}; "
        f"overlap {definition.overlap}, catch-up {definition.catch_up}, from {definition.source}",
        soft_wrap=True,
    )
    for reason in explanation.reasons:
        console.print(f"  [b]{escape(reason.message)}[/b]", soft_wrap=True)
        console.print(f"    [dim]→[/dim] {escape(reason.remedy)}", soft_wrap=True)
    _print_instants(explanation.upcoming)
    if fires:
        console.print(
            listing(fires, "fire_at", "outcome", "execution_id", "reason", fire_at=_fire_at)
        )


@app.command()
def preview(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A stored schedule.")] = None,
    count: Annotated[int, typer.Option("--count", "-n", help="How many instants.")] = 5,
    cron: Cron = None,
    tz: Tz = None,
    every: Every = None,
    at: At = None,
    namespace: Namespace = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show the next instants of a stored schedule, or of a --cron, --every or --at.

    For the latter no database is needed: ff schedules preview --cron "0 2 * * *" --tz Europe/Berlin
    """
    if name is not None:
        if any(each is not None for each in (cron, tz, every, at)):
            raise invalid_input("NAME", name, "cannot be given with --cron, --tz, --every or --at")

        async def read(engine: Any) -> tuple[ScheduleSpec, list[datetime]]:
            stored: Schedule = await engine.get_schedule(name, namespace=namespace)
            return stored.definition.spec, await engine.preview_schedule(
                name, count, namespace=namespace
            )

        spec, found = ask(database_url, read)
    else:
        check_limit(count, field="count")
        now = datetime.now(UTC)
        spec = spec_of(cron=cron, tz=tz, every=every, at=at, starts=now if every else None)
        found = [instant(each) for each in next_instants(spec, epoch_ms(now), count)]
    zone = ZoneInfo(spec.tz)
    upcoming = [UpcomingInstant(at=each, local=each.astimezone(zone)) for each in found]
    if as_json:
        print_json({"instants": upcoming})
    else:
        _print_instants(upcoming)


@app.command()
def create(
    name: Name,
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", help="The kind of the task.", autocompletion=complete_kind),
    ],
    payload: Annotated[
        str, typer.Argument(metavar="PAYLOAD", help="The arguments of the task as JSON.")
    ] = "{}",
    cron: Cron = None,
    tz: Tz = None,
    every: Every = None,
    at: At = None,
    overlap: Annotated[
        ScheduleOverlap, typer.Option(help="While an earlier execution has not ended.")
    ] = ScheduleOverlap.SKIP,
    catch_up: Annotated[int, typer.Option(help="How many missed instants are fired later.")] = 1,
    catch_up_window: CatchUpWindow = None,
    jitter: Jitter = None,
    starts: Starts = None,
    until: Until = None,
    runs: Runs = None,
    lane: Annotated[
        str, typer.Option(help="The lane of the executions.", autocompletion=complete_lane)
    ] = "default",
    priority: Annotated[int, typer.Option(help="0 to 9000; higher is claimed first.")] = 0,
    tag: Tag = None,
    namespace: Namespace = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Create a schedule: ff schedules create digest mail '{"to": "ann"}' --cron "0 9 * * MON"

    The retries, timeouts and lane that the application sets for its task are not known here: define
    the schedule in Python if they matter.
    """
    definition = ScheduleDefinition(
        name=name,
        namespace=namespace,
        spec=spec_of(cron=cron, tz=tz, every=every, at=at, starts=starts if every else None),
        execution_kind=kind,
        lane_id=lane,
        input_payload=json_bytes(payload),
        payload_encoding="json",
        priority=priority,
        tags=parse_tags(tag or []),
        overlap=overlap,
        catch_up=catch_up,
        catch_up_window=catch_up_window or timedelta(days=1),
        jitter=jitter or timedelta(),
        starts=starts,
        until=until,
        runs=runs,
    )
    made = ask(
        database_url, lambda engine: engine.create_schedule(definition, actor=user_at_host())
    )
    say(made, f"schedule {name} fires next at {_utc(made.next_fire_at)}", as_json)


@app.command()
def delete(
    name: Name,
    yes: Yes = False,
    reason: Reason = None,
    namespace: Namespace = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Delete a schedule and its history; its executions stay."""
    confirmed(f"Delete schedule {name!r}?", yes=yes)
    ask(database_url, lambda engine: engine.delete_schedule(name, **change(namespace, reason)))
    say({"name": name, "deleted": True}, f"schedule {name} is deleted", as_json)


def json_bytes(payload: str) -> bytes:
    """The payload, if it is JSON; raises `ValidationError`."""
    try:
        msgspec.json.decode(payload.encode("utf-8", "surrogatepass"))
    except msgspec.DecodeError as error:
        raise invalid_input("payload", payload[:80], f"is not JSON: {error}") from None
    return payload.encode()


def _state(schedule: Schedule) -> str:
    word = schedule.state.value
    if schedule.state in (ScheduleState.ACTIVE, ScheduleState.FINISHED):
        return word
    by = f" by {escape(schedule.state_by)}" if schedule.state_by else ""
    reason = f": {escape(schedule.state_reason)}" if schedule.state_reason else ""
    colour = "yellow" if schedule.state is ScheduleState.PAUSED else "red"
    return f"[{colour}]{word}[/]{by}{reason}"


def _fire_at(fire: ScheduleFire) -> str:
    return _utc(fire.fire_at)


def _utc(moment: datetime | None) -> str:
    return "never" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _print_instants(instants: Sequence[UpcomingInstant]) -> None:
    """The instants in UTC, in their zone if that is another one, and how far away they are."""
    zones = any(each.local.tzname() != "UTC" for each in instants)
    made = table("at", *(["local"] if zones else []), "in")
    for each in instants:
        local = [f"{each.local:%a %Y-%m-%d %H:%M:%S %Z}"] if zones else []
        made.add_row(f"{each.at:%Y-%m-%d %H:%M:%S}", *local, ago(each.at).removeprefix("in "))
    console.print(made if instants else "No further instants.")
