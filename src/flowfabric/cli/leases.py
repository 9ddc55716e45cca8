"""`ff leases list | expired`: the leases that workers hold, and those that expired."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from flowfabric.cli.connection import ask
from flowfabric.cli.options import Namespace
from flowfabric.cli.output import (
    AsJson,
    Cursor,
    DatabaseUrl,
    console,
    listing,
    more,
    print_json,
)
from flowfabric.engine.executions.list_expired_leases import ExpiredLeaseCursor
from flowfabric.errors import ValidationError, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.instants import epoch_ms, instant

app = typer.Typer(help="Show the leases that workers hold.", no_args_is_help=True)

Limit = Annotated[int, typer.Option(min=1, max=10_000, help="Show at most this many.")]

_END_OF_TIME: Final = datetime(9999, 1, 1, tzinfo=UTC)


@app.callback()
def leases() -> None:
    """Makes `ff leases` a group."""


@app.command("list")
def list_(
    namespace: Namespace = None,
    limit: Limit = 100,
    cursor: Cursor = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the leases of all running executions, the next to expire first.

    Workers renew their leases: one that expired belongs to a worker that died or hangs.
    """
    _list(database_url, namespace, limit, cursor, _END_OF_TIME, as_json)


@app.command()
def expired(
    namespace: Namespace = None,
    limit: Limit = 100,
    cursor: Cursor = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show leases that expired and were not reclaimed yet, the longest expired first.

    Workers reclaim expired leases every second: more than a few here mean that no worker runs.
    """
    _list(database_url, namespace, limit, cursor, None, as_json)


def _list(
    database_url: str | None,
    namespace: str | None,
    limit: int,
    cursor: str | None,
    as_of: datetime | None,
    as_json: bool,
) -> None:
    after = None if cursor is None else _read_cursor(cursor)
    page = ask(
        database_url,
        lambda engine: engine.list_expired_leases(
            namespace=namespace, limit=limit, as_of=as_of, after=after
        ),
    )
    ended = page.next_cursor
    next_cursor = None if ended is None else f"{epoch_ms(ended.expires_at)}/{ended.execution_id}"
    if as_json:
        print_json({"leases": page.leases, "next_cursor": next_cursor})
        return
    shown = listing(
        page.leases,
        "execution_id",
        "worker_instance_id",
        "expires_at",
        "attempt_index",
        "lease_epoch",
    )
    none = "No expired leases." if as_of is None else "No leases: nothing runs."
    console.print(shown if page.leases else none)
    more(next_cursor)


def _read_cursor(text: str) -> ExpiredLeaseCursor:
    expires_at_ms, _, execution_id = text.partition("/")
    try:
        return ExpiredLeaseCursor(
            expires_at=instant(int(expires_at_ms)), execution_id=ExecutionId.parse(execution_id)
        )
    except (ValueError, OverflowError, ValidationError):
        raise invalid_input("--cursor", text, "was not printed by this command") from None
