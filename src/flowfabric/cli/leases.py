"""`ff leases expired`: which leases ran out and were not taken back yet."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from flowfabric.cli.connection import ask
from flowfabric.cli.output import AsJson, DatabaseUrl, ago, console, print_json, table

app = typer.Typer(help="Leases that ran out.", no_args_is_help=True)


@app.callback()
def leases() -> None:
    """Workers take lapsed leases back every second; more than a few here means none runs."""


@app.command()
def expired(
    namespace: Annotated[str | None, typer.Option(help="Only of this namespace.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 100,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show leases that ran out and were not taken back yet, the longest expired first."""
    page = ask(
        database_url,
        lambda engine: engine.list_expired_leases(namespace=namespace, limit=limit),
    )
    if as_json:
        print_json(page)
        return
    shown = table("execution", "worker", "attempt", "epoch", "ran out")
    for lease in page.leases:
        shown.add_row(
            str(lease.execution_id),
            escape(lease.worker_instance_id),
            str(lease.attempt_index),
            str(lease.lease_epoch),
            ago(lease.expires_at),
        )
    console.print(shown if page.leases else "No lease has run out.")
