"""Where `ff` begins: the commands, and one clear line for whatever goes wrong."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from flowfabric.cli import (
    dev,
    doctor,
    events,
    execution_controls,
    explain,
    flows,
    keys,
    lanes,
    leases,
    migrate,
    retention,
    submit,
    worker,
    workers,
)
from flowfabric.cli.output import complain
from flowfabric.errors import FlowFabricError
from flowfabric.version import __version__

app = typer.Typer(
    name="ff",
    help="FlowFabric: durable execution on nothing but Postgres.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Commands need a database: --database-url, FF_DATABASE_URL, or a running [b]ff dev[/b].",
)
app.command("dev")(dev.dev)
app.command("migrate")(migrate.migrate)
app.command("worker")(worker.worker)
app.command("submit")(submit.submit)
app.add_typer(execution_controls.app, name="executions")
app.add_typer(flows.app, name="flows")
app.command("explain")(explain.explain)
app.add_typer(lanes.app, name="lanes")
app.add_typer(workers.app, name="workers")
app.add_typer(leases.app, name="leases")
app.add_typer(events.app, name="events")
app.add_typer(retention.app, name="retention")
app.add_typer(keys.app, name="keys")
app.command("doctor")(doctor.doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"flowfabric {__version__}")
        raise typer.Exit


@app.callback()
def root(
    show: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """FlowFabric: durable execution on nothing but Postgres."""


def main() -> None:
    """Run `ff`; a user's mistake is one line and exit code 1, never a traceback."""
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)  # its errors reach us as exceptions
    try:
        app()
    except FlowFabricError as error:
        complain(str(error))
        sys.exit(1)
