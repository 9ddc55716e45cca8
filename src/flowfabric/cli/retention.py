"""`ff retention trim`: forget what ended long ago, now."""

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
from flowfabric.cli.submit import parse_tags
from flowfabric.client.identity import user_at_host
from flowfabric.engine.engine import Engine
from flowfabric.engine.retention.trim import Trim
from flowfabric.errors import NotFound

app = typer.Typer(help="Forget executions that ended long ago.", no_args_is_help=True)


@app.callback()
def retention() -> None:
    """Workers forget finished executions by themselves: see `ff lanes keep`."""


@app.command()
def trim(
    lane: Annotated[str, typer.Option(help="Of this lane.")],
    older_than: Annotated[
        str, typer.Option(metavar="DURATION", help="What ended longer ago: 12h, 7d, …")
    ],
    namespace: Annotated[str | None, typer.Option(help="Only of this namespace.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only with area.name=value.")] = None,
    yes: Yes = False,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Forget what ended on a lane, with its attempts, results and events; asks first."""
    length = duration(older_than, field="--older-than")
    wanted = Trim(
        lane_id=lane,
        retention=length,
        namespace=namespace,
        tag=None if tag is None else next(iter(parse_tags([tag]).items())),
    )
    deleted = ask(database_url, lambda engine: _trim(engine, wanted, length, yes))
    if as_json:
        print_json({"deleted": deleted})
    else:
        console.print(f"forgot {counted(deleted, 'execution')}")


async def _trim(engine: Engine, wanted: Trim, length: timedelta, yes: bool) -> int:
    if wanted.lane_id not in {lane.lane_id for lane in await engine.count_by_lane()}:
        raise NotFound("lane", wanted.lane_id)
    many = await engine.count_trimmable(wanted)
    if many == 0:
        return 0
    confirmed(
        f"forget {counted(many, 'execution')} that ended on lane {wanted.lane_id!r} "
        f"more than {spoken(length)} ago?",
        yes=yes,
    )
    deleted = 0
    with Progress(transient=True, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=many)
        while (moved := await engine.trim_retention(wanted, actor=user_at_host())) > 0:
            deleted += moved
            progress.update(bar, completed=deleted)
    return deleted
