"""`ff worker`: run the tasks of an application until a signal stops it."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Sequence
from typing import Annotated

import typer

from flowfabric.cli.connection import resolve, run
from flowfabric.cli.loading import load_app
from flowfabric.cli.logs import LogLevel, log_to_terminal
from flowfabric.cli.metrics import (
    MetricsDatabase,
    MetricsHost,
    MetricsPort,
    MetricsSettings,
    metrics_of_process,
    metrics_of_supervisor,
)
from flowfabric.cli.output import DatabaseUrl, complain, counted
from flowfabric.cli.supervisor import supervise
from flowfabric.config import DATABASE_URL, SERVER_URL, DatabaseConfig, behind_pooler
from flowfabric.worker.threads import STUCK


def worker(
    application: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="The app to run, e.g. shop.tasks:app.")
    ],
    database_url: DatabaseUrl = None,
    server: Annotated[
        str | None,
        typer.Option(
            envvar=SERVER_URL,
            show_envvar=True,
            help="URL of an `ff server`: the worker lives on HTTP alone. FF_TOKEN has its token.",
            metavar="URL",
        ),
    ] = None,
    ca: Annotated[
        str | None, typer.Option(help="File of certificates that sign that of --server.")
    ] = None,
    lane: Annotated[
        list[str] | None,
        typer.Option(help="A lane to serve; repeat for more. Default: the lanes of the tasks."),
    ] = None,
    capability: Annotated[
        list[str] | None, typer.Option(help="A capability to offer; repeat for more.")
    ] = None,
    concurrency: Annotated[int, typer.Option(help="How many handlers run at the same time.")] = 64,
    sync_workers: Annotated[int, typer.Option(help="Threads for tasks that are not async.")] = 32,
    max_stuck_threads: Annotated[
        int | None,
        typer.Option(
            help="Threads that may run on after their attempt before their tasks are not claimed."
            " Default: as many as --sync-workers."
        ),
    ] = None,
    lease_ttl: Annotated[
        float, typer.Option(help="Seconds until a lease expires unless renewed.")
    ] = 30.0,
    drain: Annotated[float, typer.Option(help="Seconds that handlers get after SIGTERM.")] = 30.0,
    processes: Annotated[int, typer.Option(help="How many worker processes.")] = 1,
    worker_id: Annotated[str | None, typer.Option(help="Name of the worker pool.")] = None,
    pooler: Annotated[
        bool | None,
        typer.Option(
            help="The URL is a pooler in transaction mode. Default: FF_DATABASE_POOLER, else no.",
            show_default=False,
        ),
    ] = None,
    until_idle: Annotated[
        bool,
        typer.Option(
            help="Stop when no work is left. Executions of a dead worker are waited for, until"
            " their lease expires: at most --lease-ttl."
        ),
    ] = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    metrics_database: MetricsDatabase = False,
    log_level: LogLevel = None,
) -> None:
    """Claim executions and run them; what fails is logged, with what the tasks log.

    After SIGTERM or Ctrl-C the worker drains: it claims nothing more, running handlers finish, and
    unfinished executions go back to the queue. A second signal ends the process at once.
    """
    if server is not None and database_url is None:
        dsn = None
    elif server is not None and os.environ.get(SERVER_URL) != server:
        raise typer.BadParameter("and --database-url cannot both be given", param_hint="--server")
    else:
        dsn, server = resolve(database_url), None
    app = load_app(application)
    if processes < 1:
        raise typer.BadParameter(f"{processes} must be at least 1", param_hint="--processes")
    log_to_terminal(log_level, with_date=True)
    if metrics_database and metrics_port is None:
        raise typer.BadParameter("needs --metrics-port", param_hint="--metrics-database")
    if metrics_database and dsn is None:
        raise typer.BadParameter("cannot be with --server", param_hint="--metrics-database")
    gauges = None
    if metrics_database and dsn is not None:
        gauges = DatabaseConfig(dsn=dsn, pool_size=1, pooler=behind_pooler(pooler))
    metrics = MetricsSettings(metrics_port, metrics_host, gauges)
    if processes > 1:
        environment = {DATABASE_URL: dsn} if dsn is not None else {SERVER_URL: server or ""}
        sys.exit(_supervised(processes, environment, metrics))
    built = app.worker(
        dsn=dsn,
        url=server,
        ca=ca,
        lanes=lane or None,
        capabilities=capability or (),
        concurrency=concurrency,
        sync_workers=sync_workers,
        max_stuck_threads=max_stuck_threads,
        lease_ttl=lease_ttl,
        drain=drain,
        worker_id=worker_id,
        pooler=pooler,
    )
    with metrics_of_process(metrics):
        run(built.run_until_idle() if until_idle else built.run())
    _exit_despite_running_threads()


def _supervised(processes: int, environment: dict[str, str], metrics: MetricsSettings) -> int:
    """Run so many processes until they are stopped; the exit code."""
    with metrics_of_supervisor(metrics) as shared:
        if shared is not None:
            environment = environment | shared.environment
        return supervise(
            one_process(sys.argv[1:]),
            processes,
            environment=environment,
            on_end=None if shared is None else shared.ended,
        )


def one_process(arguments: Sequence[str]) -> list[str]:
    """The command of one worker process: with these arguments, and without --processes."""
    kept, left = [sys.executable, "-m", "flowfabric.cli"], iter(arguments)
    for argument in left:
        if argument == "--processes":
            next(left)
        elif not argument.startswith("--processes="):
            kept.append(argument)
    return kept


def _exit_despite_running_threads() -> None:
    """Exit at once if handler threads still run after the drain: threads cannot be stopped."""
    stuck = [thread for thread in threading.enumerate() if thread.name == STUCK]
    if stuck:
        logging.shutdown()
        sys.stdout.flush()
        if os.environ.get("PYTEST_CURRENT_TEST") is None:
            threads = counted(len(stuck), "handler thread")
            complain(f"{threads} did not finish and will be ended with the process")
        os._exit(0)
