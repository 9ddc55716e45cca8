"""`ff leases expired`: leases that expired and were not reclaimed yet."""

from __future__ import annotations

from typing import Annotated

import typer

from flowfabric.cli.connection import ask
from flowfabric.cli.output import AsJson, DatabaseUrl, ago, console, escape, print_json, table

app = typer.Typer(help="Show expired leases.", no_args_is_help=True)


@app.callback()
def leases() -> None:
    """Makes `ff leases` a group."""


@app.command()
def expired(
    namespace: Annotated[str | None, typer.Option(help="Only in this namespace.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Show at most this many.")] = 100,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show leases that expired and were not reclaimed yet, the longest expired first.

    Workers reclaim expired leases every second: more than a few here mean that no worker runs.
    """
    page = ask(
        database_url,
        lambda engine: engine.list_expired_leases(namespace=namespace, limit=limit),
    )
    if as_json:
        print_json(page)
        return
    shown = table("execution", "worker", "attempt", "epoch", "expired")
    for lease in page.leases:
        shown.add_row(
            str(lease.execution_id),
            escape(lease.worker_instance_id),
            str(lease.attempt_index),
            str(lease.lease_epoch),
            ago(lease.expires_at),
        )
    console.print(shown if page.leases else "No expired leases.")
