"""`ff server`: every operation over HTTP, until a signal stops it."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowfabric.cli.connection import resolve, run
from flowfabric.cli.extras import require
from flowfabric.cli.logs import LogLevel, log_to_terminal
from flowfabric.cli.output import DatabaseUrl
from flowfabric.cli.supervisor import supervise
from flowfabric.cli.worker import one_process
from flowfabric.config import DatabaseConfig, behind_pooler

if TYPE_CHECKING:
    from flowfabric.server.settings import Settings

MIGRATE = "FF_MIGRATE_ON_BOOT"


def server(
    database_url: DatabaseUrl = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The address to listen on. Default: FF_LISTEN, else 127.0.0.1:9090.",
            show_default=False,
        ),
    ] = None,
    processes: Annotated[int, typer.Option(help="How many processes share the address.")] = 1,
    sweeps: Annotated[
        bool | None,
        typer.Option(
            help="Also run the sweeps, as workers do: one process at a time does. Default: yes.",
            show_default=False,
        ),
    ] = None,
    migrate: Annotated[
        bool | None,
        typer.Option(
            help="Bring an older schema up to date. Default: FF_MIGRATE_ON_BOOT, else yes.",
            show_default=False,
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve without tokens on any address.")
    ] = False,
    pooler: Annotated[
        bool | None,
        typer.Option(
            help="The URL is a pooler in transaction mode. Default: FF_DATABASE_POOLER, else no.",
            show_default=False,
        ),
    ] = None,
    log_level: LogLevel = None,
) -> None:
    """Answer HTTP requests: the dashboard at /ui, the REST API, /docs, metrics and probes.

    Without tokens (ff tokens create) it listens on this machine only. After SIGTERM or Ctrl-C it
    drains: streams end, requests finish. A second signal ends the process at once.
    """
    check_installed()
    from flowfabric.server.serve import SOCKET, bind, share
    from flowfabric.server.settings import Settings

    dsn = resolve(database_url)
    if processes < 1:
        raise typer.BadParameter(f"{processes} must be at least 1", param_hint="--processes")
    log_to_terminal(log_level, with_date=True)
    given: dict[str, Any] = {} if listen is None else {"listen": listen}
    settings = Settings(insecure=insecure, **given)
    migrating = (
        os.environ.get(MIGRATE, "1") not in ("0", "false", "no") if migrate is None else migrate
    )
    with bind(settings) as bound:
        if processes > 1:
            share(bound)
            fd = bound.fileno()
            os.set_inheritable(fd, True)
            environment = {"FF_DATABASE_URL": dsn, SOCKET: str(fd)}
            with tempfile.TemporaryDirectory(prefix="flowfabric-metrics-") as directory:
                from flowfabric.metrics import SharedCounters

                shared = SharedCounters(Path(directory))
                code = supervise(
                    one_process(sys.argv[1:]),
                    processes,
                    environment=environment | shared.environment,
                    on_end=shared.ended,
                    pass_fds=(fd,),
                )
            sys.exit(code)
        from flowfabric.server.serve import POOL_SIZE

        config = DatabaseConfig(dsn=dsn, pool_size=POOL_SIZE, pooler=behind_pooler(pooler))
        run(_serve(config, settings, bound, sweeps=sweeps is not False, migrating=migrating))
    _exit_at_once()


def _exit_at_once() -> None:
    """End the process: everything is closed, and to take the modules apart lasts a second."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


async def _serve(
    config: DatabaseConfig, settings: Settings, bound: Any, *, sweeps: bool, migrating: bool
) -> None:
    from flowfabric.dashboard import mounting
    from flowfabric.server.serve import boot, serve

    engine = await boot(config, settings, migrating=migrating)
    try:
        await serve(engine, settings, bound, sweeps=sweeps, mounting=mounting)
    finally:
        await engine.close()


def check_installed() -> None:
    """Raise `ConfigError` unless the extra of the server is installed."""
    modules = ("jinja2", "starlette", "uvicorn")
    require(modules, field="server", value="ff server", extra="server")
