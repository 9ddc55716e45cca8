"""`ff keys list | seed | rotate`: the keys that sign grants and waitpoint tokens."""

from __future__ import annotations

import os
import secrets
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import msgspec
import typer

from flowfabric.cli.connection import ask
from flowfabric.cli.durations import duration
from flowfabric.cli.output import AsJson, DatabaseUrl, console, escape, listing, print_json
from flowfabric.client.identity import user_at_host
from flowfabric.engine.keys.rotate_waitpoint_hmac_secret_all import KeyUnchanged
from flowfabric.engine.keys.seed_waitpoint_hmac_secret import KeyAlreadySeeded, KeySeeded

app = typer.Typer(
    help="List and rotate the keys that sign grants and waitpoint tokens.", no_args_is_help=True
)

SECRET_ENV: Final = "FF_WAITPOINT_HMAC_SECRET"  # noqa: S105  the name of a variable

Kid = Annotated[str, typer.Option(help="The name of the key.")]


class KeyStatus(StrEnum):
    """What a key does."""

    SIGNS = "signs"
    RETIRED = "retired"
    """It verifies what it signed, until it expires."""


class ListedKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key, without its secret."""

    kid: str
    status: KeyStatus
    expires_at: datetime | None


@app.command("list")
def list_(
    limit: Annotated[int | None, typer.Option(min=1, help="Show at most this many.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show the key that signs, and retired keys that still verify; secrets are not shown."""
    kids = ask(database_url, lambda engine: engine.list_waitpoint_hmac_kids())
    signing = [] if kids.current_kid is None else [kids.current_kid]
    signs = [ListedKey(kid=kid, status=KeyStatus.SIGNS, expires_at=None) for kid in signing]
    retired = [
        ListedKey(kid=each.kid, status=KeyStatus.RETIRED, expires_at=each.expires_at)
        for each in kids.verifying
    ]
    keys = [*signs, *retired][:limit]
    if as_json:
        print_json({"keys": keys, "next_cursor": None})
        return
    shown = listing(keys, "kid", "status", "expires_at")
    console.print(shown if keys else "No keys yet: ff keys seed makes the first.")


@app.command()
def seed(kid: Kid = "k1", database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Store the first key, with the secret of FF_WAITPOINT_HMAC_SECRET or a random one.

    The variable holds 64 hex digits. If a key of this name exists, nothing changes, so it is safe
    to run this command at every deployment.
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
        console.print(f"key {escape(kid)} exists already{differs}; nothing changed")
    if given is not None and isinstance(answer, KeyAlreadySeeded) and not answer.same_secret:
        raise typer.Exit(1)


@app.command()
def rotate(
    kid: Annotated[
        str | None, typer.Option(help="The name of the new key. Default: a random name.")
    ] = None,
    grace: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the old key still verifies.")
    ] = "24h",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Sign with a new key, with the secret of FF_WAITPOINT_HMAC_SECRET (hex) or a random one."""
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
        previous, note = answer.result.previous_kid, ""
        if previous:
            verifies = f"verifies for {grace} more" if length else "no longer verifies"
            note = f"; {escape(previous)} {verifies}"
        console.print(f"{escape(answer.result.new_kid)} signs from now on{note}")
