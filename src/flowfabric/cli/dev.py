"""`ff dev`: start a database and a worker, and run the example or an application."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, Generator
from typing import Annotated, Any

import typer
from rich.live import Live

from flowfabric.app.app import App
from flowfabric.cli import example
from flowfabric.cli.connection import ADDRESS, HOME, run
from flowfabric.cli.loading import load_app
from flowfabric.cli.logs import LogLevel, log_to_terminal
from flowfabric.cli.output import (
    AsJson,
    DatabaseUrl,
    coloured,
    console,
    escape,
    print_json,
    table,
)
from flowfabric.client.client import Client
from flowfabric.client.handle import Handle
from flowfabric.config import database_url as configured
from flowfabric.config import redact
from flowfabric.db.embedded import EmbeddedPostgres
from flowfabric.db.migrate import migrate
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.errors import OutcomeError

_TRY = """
Try it, in another terminal in this directory:
  [b]{ff} submit {call} --wait[/b]
  [b]{ff} executions list[/b]
  [b]{ff} flows list[/b]    [b]{ff} explain ID[/b]
  [b]{ff} lanes[/b]    [b]{ff} workers[/b]    [b]{ff} doctor[/b]
Python programs find the database by this variable:
  [b]export FF_DATABASE_URL='{dsn}'[/b]
Ctrl-C stops everything; the data stays in the database.
"""


def dev(
    application: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:APP", help="Run this app instead of the example."),
    ] = None,
    database_url: DatabaseUrl = None,
    once: Annotated[bool, typer.Option(help="Exit when the example has ended.")] = False,
    concurrency: Annotated[int, typer.Option(help="How many handlers run at the same time.")] = 16,
    log_level: LogLevel = None,
    as_json: AsJson = False,
) -> None:
    """Start Postgres and a worker, and run the example app or yours.

    Without a database URL, Postgres is started in .flowfabric/ and stopped at the end.
    """
    app = example.app if application is None else load_app(application)
    log_to_terminal(log_level)
    with _database(configured(database_url), quiet=as_json) as dsn:
        run(_dev(app, dsn, once=once, concurrency=concurrency, as_json=as_json))


def _hint(app: App, dsn: str) -> str:
    """The commands to try next, with the task of this app and the path of `ff`."""
    ff = "ff" if shutil.which("ff") else os.path.relpath(sys.argv[0])
    if app is example.app:
        call = """charge_order '{"order_id": "o-7", "total": 99}'"""
    else:
        call = f"{next(iter(app.tasks))} '{{}}'"
    return _TRY.format(ff=escape(ff), call=escape(call), dsn=escape(dsn))


@contextlib.contextmanager
def _database(dsn: str | None, *, quiet: bool) -> Generator[str]:
    """The given database, or an embedded one whose URL is stored for other commands."""
    if dsn is not None:
        yield dsn
        return
    if not quiet:
        console.print("Starting Postgres …", end=" ")
    with EmbeddedPostgres.start(HOME / "postgres") as embedded:
        if not quiet:
            console.print("ready.")
        run(migrate(embedded.dsn))
        ADDRESS.write_text(embedded.dsn)
        yield embedded.dsn
    if not (HOME / "postgres" / "postmaster.pid").exists():
        ADDRESS.unlink(missing_ok=True)


async def _dev(app: App, dsn: str, *, once: bool, concurrency: int, as_json: bool) -> None:
    await migrate(dsn)
    if not as_json:
        console.print(f"Database: [b]{escape(redact(dsn))}[/b]", soft_wrap=True)
    worker = app.worker(dsn=dsn, concurrency=concurrency, drain=10.0)
    client = await Client.connect(dsn, namespace=app.namespace)
    async with client, worker, _stopped_by_signals() as stopped:
        if app is example.app:
            handles = await _submit_example(client)
            await _show_until_ended(client, handles, stopped, as_json=as_json)
        if not once and not stopped.is_set():
            if not as_json:
                console.print(_hint(app, dsn), soft_wrap=True)
            await stopped.wait()


@contextlib.asynccontextmanager
async def _stopped_by_signals() -> AsyncGenerator[asyncio.Event]:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        yield stopped
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def _submit_example(client: Client) -> list[Handle[Any]]:
    orders = [example.Order(f"o-{n}", 100 * n) for n in range(1, 7)]
    handles: list[Handle[Any]] = [
        *await client.submit_many(example.charge_order.many(orders), tags={"shop.tenant": "acme"}),
        await client.submit(example.charge_order.call(example.Order("o-8", 4200))),
        await client.submit(example.thumbnail.call("cat.jpg"), priority=10),
        await client.submit(example.remind.call("Ann"), delay=1.5),
    ]
    release = await client.start(example.release("4f2a9c1"))
    return handles + [client.handle(member.execution_id) for member in await release.members()]


async def _show_until_ended(
    client: Client, handles: list[Handle[Any]], stopped: asyncio.Event, *, as_json: bool
) -> None:
    """Show the executions, redrawn, until all have ended or a signal stops the command."""
    ends = asyncio.gather(*[_ended(handle) for handle in handles])
    with contextlib.nullcontext() if as_json else Live(console=console) as live:
        while not ends.done() and not stopped.is_set():
            await asyncio.wait((ends,), timeout=0.25)
            if live is not None:
                live.update(await _states(client, handles))
    if ends.done():
        if as_json:
            print_json(ends.result())
    else:
        ends.cancel()


async def _ended(handle: Handle[Any]) -> dict[str, Any]:
    try:
        result, error = await handle.result(), None
    except OutcomeError as ended:
        result, error = None, str(ended)
    state = await handle.state()
    return {
        "execution_id": handle.execution_id,
        "public_state": state,
        "result": result,
        "error": error,
    }


async def _states(client: Client, handles: list[Handle[Any]]) -> Any:
    shown = table("execution", "kind", "state", "attempts", "detail")
    for handle in handles:
        found = await client.describe(handle.execution_id)
        shown.add_row(
            str(found.execution_id),
            escape(found.execution_kind),
            coloured(found.public_state),
            str(found.total_attempt_count),
            escape(_detail(found)),
        )
    return shown


def _detail(found: ExecutionSnapshot) -> str:
    if found.public_state.is_terminal:
        return found.failure_reason or found.progress_message or ""
    if found.failure_reason:
        return f"will retry: {found.failure_reason}"
    return found.progress_message or (found.blocking_reason or "")
