"""`ff dev`: start a database and a worker, and run the example or an application."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, Generator
from datetime import timedelta
from typing import Annotated, Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import typer
from rich.live import Live

from flowfabric.app.app import App
from flowfabric.cli import example
from flowfabric.cli.connection import ADDRESS, HOME, engine_on, run
from flowfabric.cli.loading import load_app
from flowfabric.cli.logs import LogLevel, log_to_terminal
from flowfabric.cli.only_instance import only_instance
from flowfabric.cli.output import (
    AsJson,
    DatabaseUrl,
    console,
    cut,
    escape,
    listing,
    print_json,
)
from flowfabric.cli.server import check_installed
from flowfabric.cli.suggested_call import suggested_call
from flowfabric.client.client import Client
from flowfabric.client.handle import Handle
from flowfabric.client.open_engine import on_database
from flowfabric.config import DATABASE_URL, redact
from flowfabric.config import database_url as configured
from flowfabric.db.embedded import EmbeddedPostgres
from flowfabric.db.migrate import migrate
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.engine.suspensions.read_question import QUESTION_TAG
from flowfabric.errors import ConfigError, OutcomeError

_TRY = """
Try it, in another terminal in this directory:
  [b]{ff} {call}[/b]
  [b]{ff} executions list[/b]
  [b]{ff} flows list[/b]    [b]{ff} explain ID[/b]
  [b]{ff} lanes[/b]    [b]{ff} workers[/b]    [b]{ff} doctor[/b]
Python programs find the database by this variable:
  [b]export FF_DATABASE_URL='{dsn}'[/b]
Ctrl-C stops {stops}; the data stays in the database.
"""
_APPROVE = """
One order waits for a signal, for a week at most. It goes on, sleeps for three seconds and ships:
  [b]{ff} explain '{id}'[/b]
  [b]{ff} signals send '{id}' approved '{payload}'[/b]
  [b]{ff} executions steps '{id}'[/b]
"""
_ANSWER = """
One refund asks you, under Approvals in the dashboard.
"""
_FAILS_ON_PURPOSE = (
    "The example: one order is declined and two are retried on purpose, so WARNING and ERROR lines"
    " are expected."
)


def dev(
    application: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:APP", help="Run this app instead of the example."),
    ] = None,
    database_url: DatabaseUrl = None,
    with_example: Annotated[
        bool, typer.Option("--example", help="Run the example even in the database of a URL.")
    ] = False,
    once: Annotated[bool, typer.Option(help="Exit when the example has ended.")] = False,
    concurrency: Annotated[int, typer.Option(help="How many handlers run at the same time.")] = 16,
    log_level: LogLevel = None,
    as_json: AsJson = False,
) -> None:
    """Start Postgres, a worker and a server, and run the example app or yours.

    Without a database URL, Postgres is started in .flowfabric/ and stopped at the end: ff dev for
    the example, ff dev shop.tasks:app for yours.
    """
    given = configured(database_url)
    if given is not None and _is_of_this_directory(given):
        given = None
    _check(application, given_database=given is not None, with_example=with_example)
    app = example.app if application is None else load_app(application)
    log_to_terminal(log_level)
    stops = "everything" if given is None else "the worker"
    with _database(given, quiet=as_json) as dsn:
        run(_dev(app, dsn, stops=stops, once=once, concurrency=concurrency, as_json=as_json))


def _is_of_this_directory(dsn: str) -> bool:
    """Is it the database that `ff dev` starts here, which a shell may have exported?"""
    with contextlib.suppress(FileNotFoundError):
        if dsn == ADDRESS.read_text().strip():
            return True
    return parse_qs(urlsplit(dsn).query).get("host") == [str((HOME / "postgres").resolve())]


def _check(application: str | None, *, given_database: bool, with_example: bool) -> None:
    """Raise if it is not clear what runs: the example needs a database of ours, or --example."""
    if application is not None and with_example:
        raise typer.BadParameter(
            f"cannot be given together with {application}", param_hint="--example"
        )
    if application is None and given_database and not with_example:
        raise typer.BadParameter(
            "must be given to run the example in a database that ff dev did not start;"
            " or name your app: ff dev MODULE:APP",
            param_hint="--example",
        )


def _hint(app: App, dsn: str, stops: str) -> str:
    """The commands to try next, with a task of this app and the path of `ff`."""
    call = shlex.join(["submit", *suggested_call(app), "--wait"])
    return _TRY.format(ff=escape(_ff()), call=escape(call), dsn=escape(dsn), stops=stops)


def _approval_hint(order: Handle[str]) -> str:
    """The commands that let the order of the example go on."""
    payload = msgspec.json.encode(example.Approval(by="ann")).decode()
    return _APPROVE.format(ff=escape(_ff()), id=order.execution_id, payload=escape(payload))


def _ff() -> str:
    """How this command is called in a shell."""
    if shutil.which("ff"):
        return "ff"
    if sys.argv[0].endswith("__main__.py"):
        return f"{shlex.quote(sys.executable)} -m flowfabric.cli"
    return shlex.quote(os.path.relpath(sys.argv[0]))


@contextlib.contextmanager
def _database(dsn: str | None, *, quiet: bool) -> Generator[str]:
    """The given database, or an embedded one whose URL is stored for other commands."""
    if dsn is not None:
        if not quiet:
            source = DATABASE_URL if os.environ.get(DATABASE_URL) == dsn else "--database-url"
            console.print(f"Using the database of {source}; no Postgres is started.")
        yield dsn
        return
    EmbeddedPostgres.must_be_installed()
    with only_instance(HOME):
        _hide_from_git()
        if not quiet:
            console.print("Starting Postgres …", end=" ")
        with EmbeddedPostgres.start(HOME / "postgres") as embedded:
            if not quiet:
                console.print("ready.")
            run(_prepare(embedded.dsn))
            ADDRESS.write_text(embedded.dsn)
            yield embedded.dsn
        if not (HOME / "postgres" / "postmaster.pid").exists():
            ADDRESS.unlink(missing_ok=True)


async def _prepare(dsn: str) -> None:
    """The schema is current, and a key signs the tokens of waitpoints."""
    await migrate(dsn)
    async with engine_on(dsn) as engine:
        if (await engine.list_waitpoint_hmac_kids()).current_kid is None:
            await engine.seed_waitpoint_hmac_secret("dev", secrets.token_hex(32))


def _hide_from_git() -> None:
    ignored = HOME / ".gitignore"
    if not ignored.exists():
        ignored.write_text("*\n")


async def _dev(
    app: App, dsn: str, *, stops: str, once: bool, concurrency: int, as_json: bool
) -> None:
    await migrate(dsn)
    if not as_json:
        console.print(f"Database: [b]{escape(redact(dsn))}[/b]", soft_wrap=True)
    worker = app.worker(dsn=dsn, concurrency=concurrency, drain=10.0)
    client = await Client.connect(dsn, namespace=app.namespace)
    async with (
        client,
        worker,
        _serving(client, quiet=as_json or once),
        _stopped_by_signals() as stopped,
    ):
        if app is example.app:
            if not as_json:
                console.print(_FAILS_ON_PURPOSE, soft_wrap=True)
            handles, order = await _submit_example(client)
            waiting: list[Handle[Any]] = [order]
            asks = not once and await _can_ask(client)
            if once:
                await order.signal("approved", example.Approval(by="ff dev --once"))
                handles, waiting = [*handles, order], []
            elif asks:
                waiting.append(await _ask_for_refund(client))
            await _show_until_ended(client, handles, stopped, beside=waiting, as_json=as_json)
            if not once and not as_json:
                console.print(_approval_hint(order), soft_wrap=True, end="")
                console.print(_ANSWER if asks else "", end="")
        if not once and not stopped.is_set():
            if not as_json:
                console.print(_hint(app, dsn, stops), soft_wrap=True)
            await stopped.wait()


@contextlib.asynccontextmanager
async def _serving(client: Client, *, quiet: bool) -> AsyncGenerator[None]:
    """The server runs beside the worker, at a free port if its own is taken."""
    try:
        check_installed()
    except ConfigError as error:
        if not quiet:
            console.print(f"No server: {escape(str(error))}", soft_wrap=True)
        yield
        return
    from flowfabric.dashboard import mounting
    from flowfabric.dashboard.settings import is_wanted
    from flowfabric.server.serve import address_of, bind, running
    from flowfabric.server.settings import Settings

    settings = Settings()
    with bind(settings, any_port=True) as bound:
        address = address_of(bound)
        if not quiet:
            if is_wanted():
                console.print(f"Dashboard: [b]{address}/ui/[/b]", soft_wrap=True)
            console.print(f"Server: [b]{address}[/b]  (REST API: {address}/docs)", soft_wrap=True)
        async with running(on_database(client.engine), settings, bound, mounting=mounting):
            yield


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


async def _submit_example(client: Client) -> tuple[list[Handle[Any]], Handle[str]]:
    """Those that end by themselves, and the order that waits for an approval."""
    orders = [example.Order(f"o-{n}", 100 * n) for n in range(1, 7)]
    handles: list[Handle[Any]] = [
        *await client.submit_many(example.charge_order.many(orders), tags={"shop.tenant": "acme"}),
        await client.submit(example.charge_order.call(example.Order("o-8", 4200))),
        await client.submit(example.thumbnail.call("cat.jpg"), priority=10),
        await client.submit(example.remind.call("Ann"), delay=1.5),
    ]
    await client.budgets.create(
        example.REPORTS, hard={"tokens": 500}, soft={"tokens": 400}, every=timedelta(days=1)
    )
    report = example.write_report.call("monday")
    handles.append(await client.submit(report, budget=example.REPORTS))
    release = await client.start(example.release("4f2a9c1"))
    handles += [client.handle(member.execution_id) for member in await release.members()]
    return handles, await client.submit(example.fulfil_order.call(example.Order("o-9", 250)))


async def _can_ask(client: Client) -> bool:
    """Is there a key that signs waitpoints? The database of a URL may have none."""
    kids = await on_database(client.engine).list_waitpoint_hmac_kids()
    return kids.current_kid is not None


async def _ask_for_refund(client: Client) -> Handle[str]:
    order = example.Order("o-4", 400)
    question = {QUESTION_TAG: f"Pay back {order.total} of order {order.order_id}?"}
    return await client.submit(example.refund_order.call(order), tags=question)


async def _show_until_ended(
    client: Client,
    handles: list[Handle[Any]],
    stopped: asyncio.Event,
    *,
    beside: list[Handle[Any]],
    as_json: bool,
) -> None:
    """Show the executions, redrawn, until all have ended or a signal stops the command.

    Those `beside` them are shown, and not waited for.
    """
    shown = [*handles, *beside]
    ends = asyncio.gather(*[_ended(handle) for handle in handles])
    with contextlib.nullcontext() if as_json else Live(console=console) as live:
        while not ends.done() and not stopped.is_set():
            await asyncio.wait((ends,), timeout=0.25)
            if live is not None:
                live.update(await _states(client, shown))
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
    return listing(
        [await client.describe(handle.execution_id) for handle in handles],
        "execution_id",
        "execution_kind",
        "public_state",
        "total_attempt_count",
        "detail",
        detail=lambda found: escape(cut(_detail(found))),
    )


def _detail(found: ExecutionSnapshot) -> str:
    if found.public_state.is_terminal:
        return found.failure_reason or found.progress_message or ""
    if found.failure_reason:
        return f"will retry: {found.failure_reason}"
    return found.progress_message or found.blocking_detail or (found.blocking_reason or "")
