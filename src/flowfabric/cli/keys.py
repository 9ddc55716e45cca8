"""`ff keys`: the keys that sign grants and waitpoint tokens."""

from __future__ import annotations

import os
import secrets
from typing import Annotated, Final

import typer
from rich.markup import escape

from flowfabric.cli.connection import ask
from flowfabric.cli.durations import duration
from flowfabric.cli.output import AsJson, DatabaseUrl, ago, console, print_json, table
from flowfabric.client.identity import user_at_host
from flowfabric.engine.keys.rotate_waitpoint_hmac_secret_all import KeyUnchanged
from flowfabric.engine.keys.seed_waitpoint_hmac_secret import KeyAlreadySeeded, KeySeeded

app = typer.Typer(help="Keys that sign grants and waitpoint tokens.", no_args_is_help=True)

SECRET_ENV: Final = "FF_WAITPOINT_HMAC_SECRET"  # noqa: S105  the name of a variable

Kid = Annotated[str, typer.Option(help="The key's name.")]


@app.command("list")
def list_(database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show which key signs, and which retired ones still verify; never a secret."""
    kids = ask(database_url, lambda engine: engine.list_waitpoint_hmac_kids())
    if as_json:
        print_json(kids)
        return
    shown = table("kid", "", "verifies until")
    if kids.current_kid is not None:
        shown.add_row(escape(kids.current_kid), "signs", "")
    for each in kids.verifying:
        shown.add_row(escape(each.kid), "retired", ago(each.expires_at))
    empty = kids.current_kid is None and not kids.verifying
    console.print("No keys yet: ff keys rotate makes the first." if empty else shown)


@app.command()
def seed(kid: Kid = "k1", database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Store the first key, from FF_WAITPOINT_HMAC_SECRET (64 hex digits) or made at random.

    A database that has a key of this name stays as it is, so every boot may run this.
    """
    given = os.environ.get(SECRET_ENV)
    secret = given or secrets.token_hex(32)
    answer = ask(database_url, lambda engine: engine.seed_waitpoint_hmac_secret(kid, secret))
    if as_json:
        print_json({"kid": kid, "seeded": isinstance(answer, KeySeeded)})
    elif isinstance(answer, KeySeeded):
        console.print(f"seeded {escape(kid)}")
    else:
        differs = "" if answer.same_secret or given is None else " with another secret"
        console.print(f"there was a key {escape(kid)} before{differs}; nothing changed")
    if given is not None and isinstance(answer, KeyAlreadySeeded) and not answer.same_secret:
        raise typer.Exit(1)


@app.command()
def rotate(
    kid: Annotated[
        str | None, typer.Option(help="The new key's name; made up if left out.")
    ] = None,
    grace: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the old key still verifies.")
    ] = "24h",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Sign with a new key, from FF_WAITPOINT_HMAC_SECRET (hex) or made at random."""
    name = f"k-{secrets.token_hex(4)}" if kid is None else kid
    secret = os.environ.get(SECRET_ENV) or secrets.token_hex(32)
    length = duration(grace, field="--grace")
    [answer] = ask(
        database_url,
        lambda engine: engine.rotate_waitpoint_hmac_secret_all(
            name, secret, length, actor=user_at_host()
        ),
    )
    if as_json:
        print_json(answer.result)
    elif isinstance(answer.result, KeyUnchanged):
        console.print(f"{escape(answer.result.kid)} signs already; nothing changed")
    else:
        before = answer.result.previous_kid
        was = ""
        if before:
            end = f"verifies for {grace} more" if length else "verifies no more"
            was = f"; {escape(before)} {end}"
        console.print(f"{escape(answer.result.new_kid)} signs from now on{was}")
