"""`ff retention trim`: delete executions that ended long ago."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from flowfabric.cli.confirm import Yes, confirmed
from flowfabric.cli.connection import ask
from flowfabric.cli.durations import duration, spoken
from flowfabric.cli.output import AsJson, DatabaseUrl, console, counted, print_json
from flowfabric.cli.submit import parse_tag
from flowfabric.client.identity import user_at_host
from flowfabric.engine.engine import Engine
from flowfabric.engine.retention.trim import Trim
from flowfabric.errors import NotFound

app = typer.Typer(help="Delete executions that ended long ago.", no_args_is_help=True)


@app.callback()
def retention() -> None:
    """Makes `ff retention` a group."""


@app.command()
def trim(
    lane: Annotated[str, typer.Option(help="Only of this lane.")],
    older_than: Annotated[
        str, typer.Option(metavar="DURATION", help="Only those that ended longer ago: 12h, 7d, …")
    ],
    namespace: Annotated[str | None, typer.Option(help="Only in this namespace.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only with this tag: area.name=value.")] = None,
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
