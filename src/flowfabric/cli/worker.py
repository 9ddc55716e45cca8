"""`ff worker`: run an application's tasks until told to stop."""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import Annotated

import typer

from flowfabric.cli.connection import resolve, run
from flowfabric.cli.loading import load_app
from flowfabric.cli.output import DatabaseUrl, complain
from flowfabric.cli.supervisor import supervise


def worker(
    application: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="Where the app is, e.g. shop.tasks:app.")
    ],
    database_url: DatabaseUrl = None,
    lane: Annotated[
        list[str] | None,
        typer.Option(help="A lane to serve; repeat for more. By default those of the tasks."),
    ] = None,
    capability: Annotated[
        list[str] | None, typer.Option(help="A capability to offer; repeat for more.")
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Handlers at a time.")] = 64,
    sync_workers: Annotated[int, typer.Option(help="Threads for plain functions.")] = 32,
    lease_ttl: Annotated[float, typer.Option(help="Seconds a lease lasts unrenewed.")] = 30.0,
    drain: Annotated[float, typer.Option(help="Seconds to finish after SIGTERM.")] = 30.0,
    processes: Annotated[int, typer.Option(help="Worker processes.")] = 1,
    worker_id: Annotated[str | None, typer.Option(help="Name of the pool.")] = None,
    pooler: Annotated[bool, typer.Option(help="The URL is a transaction-mode pooler.")] = False,
    until_idle: Annotated[bool, typer.Option(help="Stop when nothing is left to do.")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Claim executions and run them.

    SIGTERM or Ctrl-C drains: no new claims, running handlers finish, the rest is handed back. A
    second one ends at once.
    """
    dsn = resolve(database_url)
    app = load_app(application)
    if processes < 1:
        raise typer.BadParameter(f"{processes} is not at least 1", param_hint="--processes")
    if log_level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise typer.BadParameter(f"{log_level!r} is unknown", param_hint="--log-level")
    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s %(message)s"
    )
    if processes > 1:
        sys.exit(supervise(_same_command(), processes, environment={"FF_DATABASE_URL": dsn}))
    made = app.worker(
        dsn=dsn,
        lanes=lane or None,
        capabilities=capability or (),
        concurrency=concurrency,
        sync_workers=sync_workers,
        lease_ttl=lease_ttl,
        drain=drain,
        worker_id=worker_id,
        pooler=pooler,
    )
    run(made.run_until_idle() if until_idle else made.run())
    _leave_stuck_threads()


def _same_command() -> list[str]:
    """This command for one process: the same arguments, the last --processes wins."""
    return [sys.executable, "-m", "flowfabric.cli", *sys.argv[1:], "--processes", "1"]


def _leave_stuck_threads() -> None:
    """A plain function that outlived the drain cannot be stopped, only left behind."""
    stuck = [thread for thread in threading.enumerate() if "flowfabric handler" in thread.name]
    if any(thread.is_alive() for thread in stuck):
        logging.shutdown()
        sys.stdout.flush()
        if os.environ.get("PYTEST_CURRENT_TEST") is None:
            complain(f"{len(stuck)} handler threads end with the process")
        os._exit(0)
