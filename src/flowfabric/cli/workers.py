"""`ff workers`: which worker processes live."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from flowfabric.cli.connection import engine_on, resolve, run
from flowfabric.cli.output import AsJson, DatabaseUrl, ago, console, print_json, table
from flowfabric.engine.workers.list_workers import WorkerPage


def workers(
    database_url: DatabaseUrl = None,
    namespace: Annotated[str, typer.Option(help="The tenant scope.")] = "default",
    after: Annotated[str | None, typer.Option(help="Where the last page ended.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Show the registered worker processes."""
    page = run(_list(resolve(database_url), namespace, after, limit))
    if as_json:
        print_json(page)
        return
    shown = table("instance", "pool", "lanes", "offers", "slots", "since", "heartbeat", "")
    for entry in page.workers:
        shown.add_row(
            escape(entry.worker_instance_id),
            escape(entry.worker_id),
            escape(", ".join(entry.lanes)),
            escape(", ".join(entry.capabilities)),
            str(entry.concurrency),
            ago(entry.registered_at),
            ago(entry.last_heartbeat_at),
            "" if entry.alive else "[red]silent[/]",
        )
    console.print(shown if page.workers else f"No workers in namespace {namespace!r}.")
    if page.next_cursor:
        console.print(f"More: --after {page.next_cursor}", soft_wrap=True)


async def _list(dsn: str, namespace: str, after: str | None, limit: int) -> WorkerPage:
    async with engine_on(dsn) as engine:
        return await engine.list_workers(namespace, after=after, limit=limit)
