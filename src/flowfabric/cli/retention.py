"""`ff retention list | trim`: how long ended executions are kept; delete them sooner."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress

from flowfabric.cli.completion import complete_lane
from flowfabric.cli.confirm import Yes, confirmed
from flowfabric.cli.connection import ask
from flowfabric.cli.durations import duration, spoken
from flowfabric.cli.options import Lane, Namespace, Tag, parse_tag
from flowfabric.cli.output import (
    AsJson,
    Cursor,
    DatabaseUrl,
    console,
    counted,
    listing,
    more,
    page_by_lane,
    print_json,
)
from flowfabric.client.identity import user_at_host
from flowfabric.engine.engine import Engine
from flowfabric.engine.retention.trim import Trim
from flowfabric.errors import NotFound
from flowfabric.policy import DEFAULT_RETENTION

app = typer.Typer(
    help="List how long ended executions are kept; delete them sooner.", no_args_is_help=True
)


@app.callback()
def retention() -> None:
    """Makes `ff retention` a group."""


class LaneRetention(msgspec.Struct, frozen=True, kw_only=True):
    """How long the executions of a lane are kept after their end."""

    lane_id: str
    retention: timedelta
    """Zero: for ever."""
    default: bool


@app.command("list")
def list_(
    lane: Lane = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Show at most this many.")] = None,
    cursor: Cursor = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List how long each lane keeps ended executions; ff lanes keep LANE DURATION sets it."""
    every = [
        LaneRetention(
            lane_id=each.lane_id,
            retention=DEFAULT_RETENTION if each.retention is None else each.retention,
            default=each.retention is None,
        )
        for each in ask(database_url, lambda engine: engine.count_by_lane())
        if lane in (None, each.lane_id)
    ]
    found, next_cursor = page_by_lane(every, cursor, limit)
    if as_json:
        print_json({"retention": found, "next_cursor": next_cursor})
        return
    shown = listing(
        found,
        "lane_id",
        "retention",
        "default",
        retention=lambda each: spoken(each.retention) if each.retention else "for ever",
    )
    console.print(shown if found else "No lanes yet: they appear with the first execution.")
    more(next_cursor)


@app.command()
def trim(
    lane: Annotated[str, typer.Option(help="Only on this lane.", autocompletion=complete_lane)],
    older_than: Annotated[
        str, typer.Option(metavar="DURATION", help="Only those that ended longer ago: 12h, 7d, …")
    ],
    namespace: Namespace = None,
    tag: Tag = None,
    yes: Yes = False,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Delete ended executions of a lane, with attempts, results and events; asks first.

    Workers delete ended executions by themselves: ff lanes keep sets after which time.
    """
    length = duration(older_than, field="--older-than")
    wanted = Trim(
        lane_id=lane,
        retention=length,
        namespace=namespace,
        tag=parse_tag(tag),
    )
    deleted = ask(database_url, lambda engine: _trim(engine, wanted, length, yes))
    if as_json:
        print_json({"deleted": deleted})
    else:
        console.print(f"deleted {counted(deleted, 'execution')}")


async def _trim(engine: Engine, wanted: Trim, length: timedelta, yes: bool) -> int:
    if wanted.lane_id not in {lane.lane_id for lane in await engine.count_by_lane()}:
        raise NotFound("lane", wanted.lane_id)
    total = await engine.count_trimmable(wanted)
    if total == 0:
        return 0
    confirmed(
        f"delete {counted(total, 'execution')} that ended on lane {wanted.lane_id!r} "
        f"more than {spoken(length)} ago?",
        yes=yes,
    )
    deleted = 0
    with Progress(transient=True, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=total)
        while (moved := await engine.trim_retention(wanted, actor=user_at_host())) > 0:
            deleted += moved
            progress.update(bar, completed=deleted)
    return deleted
