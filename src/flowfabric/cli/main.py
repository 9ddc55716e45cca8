"""The entry point of `ff`: its commands, and one line on standard error for an error."""

from __future__ import annotations

import functools
import logging
import sys
from typing import Annotated, Any

import typer
from typer.main import get_command

from flowfabric.cli import (
    budgets,
    dev,
    doctor,
    events,
    execution_stream,
    explain,
    flows,
    keys,
    lanes,
    leases,
    limits,
    migrate,
    retention,
    schedule_controls,
    server,
    signals,
    submit,
    tokens,
    waitpoints,
    worker,
    workers,
)
from flowfabric.cli.exit_codes import ExitCode, exit_code
from flowfabric.cli.output import complain
from flowfabric.cli.usage import USAGE_ERRORS, complain_of_usage, in_words_of
from flowfabric.errors import FlowFabricError
from flowfabric.version import __version__

_HELP = (
    "FlowFabric: durable tasks on Postgres. Handlers run at least once, outcomes are recorded "
    "exactly once."
)

_EPILOG = (
    "Commands use the database of --database-url, else of FF_DATABASE_URL, else of the "
    "[b]ff dev[/b] that runs in this directory.\n\n"
    "First steps: [b]ff dev[/b] in one terminal; [b]ff submit KIND PAYLOAD --wait[/b], "
    "[b]ff executions list[/b] and [b]ff explain ID[/b] in another.\n\n"
    "Exit codes: 0 done, 1 the execution failed or the command was refused, 2 wrong usage, "
    "3 timeout, 4 no database."
)

app = typer.Typer(
    name="ff",
    help=_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=_EPILOG,
)
app.command("dev")(dev.dev)
app.command("migrate")(migrate.migrate)
app.command("worker")(worker.worker)
app.command("server")(server.server)
app.command("submit")(submit.submit)
app.add_typer(execution_stream.app, name="executions")
app.add_typer(flows.app, name="flows")
app.command("explain")(explain.explain)
app.add_typer(schedule_controls.app, name="schedules")
app.add_typer(signals.app, name="signals")
app.add_typer(waitpoints.app, name="waitpoints")
app.add_typer(lanes.app, name="lanes")
app.add_typer(budgets.app, name="budgets")
app.add_typer(limits.app, name="limits")
app.add_typer(workers.app, name="workers")
app.add_typer(leases.app, name="leases")
app.add_typer(events.app, name="events")
app.add_typer(retention.app, name="retention")
app.add_typer(keys.app, name="keys")
app.add_typer(tokens.app, name="tokens")
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


@functools.cache
def command() -> Any:
    """`ff` with all of its commands, which take a tenth of a second to build."""
    return get_command(app)


def main() -> None:
    """Run `ff`; an error is one line on standard error, and `exit_codes` has its exit code."""
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)  # its errors are raised as well
    try:
        code = command()(standalone_mode=False)
    except USAGE_ERRORS as error:
        code = complain_of_usage(error)
    except FlowFabricError as error:
        complain(in_words_of(command(), sys.argv[1:], error))
        code = exit_code(error)
    sys.exit(code or ExitCode.DONE)
