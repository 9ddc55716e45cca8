"""The entry point of `ff`: its commands, and one line on standard error for an error."""

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

_HELP = (
    "FlowFabric: durable tasks on Postgres. Handlers run at least once, outcomes are recorded "
    "exactly once."
)

app = typer.Typer(
    name="ff",
    help=_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Commands use the database of --database-url, else of FF_DATABASE_URL, else of the "
    "[b]ff dev[/b] that runs in this directory.",
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


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"flowfabric {__version__}")
        raise typer.Exit


@app.callback()
def root(
    show: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Has the options of `ff` itself."""


def main() -> None:
    """Run `ff`; a `FlowFabricError` is one line on standard error and exit code 1."""
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)  # its errors are raised as well
    try:
        app()
    except FlowFabricError as error:
        complain(str(error))
        sys.exit(1)
