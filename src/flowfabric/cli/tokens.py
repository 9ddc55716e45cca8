"""`ff tokens create | list | revoke`: API tokens of the server."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from flowfabric.cli.connection import ask
from flowfabric.cli.durations import duration
from flowfabric.cli.output import AsJson, DatabaseUrl, console, escape, listing, print_json
from flowfabric.client.identity import user_at_host
from flowfabric.ids import parse_uuid
from flowfabric.states import Role

app = typer.Typer(help="Make and revoke the API tokens of ff server.", no_args_is_help=True)


@app.command()
def create(
    label: Annotated[str, typer.Argument(metavar="NAME", help="What the token is for.")],
    role: Annotated[Role, typer.Option(help="What its holder may do.")],
    namespace: Annotated[
        list[str] | None,
        typer.Option(help="A namespace that its holder sees; repeat for more. Default: all."),
    ] = None,
    hide_payloads: Annotated[
        bool, typer.Option("--hide-payloads", help="Its holder sees no inputs and results.")
    ] = False,
    expires: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long it is valid, e.g. 90d. Default: for ever."),
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and show it, once: only its hash is stored."""
    lifetime = None if expires is None else duration(expires, field="--expires")
    made = ask(
        database_url,
        lambda engine: engine.create_token(
            label,
            role=role,
            namespaces=namespace or ["*"],
            hide_payloads=hide_payloads,
            expires_in=lifetime,
            actor=user_at_host(),
        ),
    )
    if as_json:
        print_json(made)
        return
    console.print(escape(made.token), soft_wrap=True)
    console.print(
        f"Token {made.token_id} of role {made.role}. Keep it now: it cannot be shown again.",
        soft_wrap=True,
    )


@app.command("list")
def list_(
    limit: Annotated[int | None, typer.Option(min=1, help="Show at most this many.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show the tokens, the newest first; their texts are not stored."""
    found = ask(database_url, lambda engine: engine.list_tokens())[:limit]
    if as_json:
        print_json({"tokens": found, "next_cursor": None})
        return
    columns = ("token_id", "label", "role", "namespaces", "expires_at", "last_used_at")
    shown = listing(found, *columns, "revoked_at")
    console.print(shown if found else "No tokens yet: ff tokens create NAME --role admin.")


@app.command()
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="TOKEN_ID", help="Of ff tokens list.")],
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a token; servers refuse it within 10 seconds."""
    parsed: UUID = parse_uuid(token_id, field="TOKEN_ID")
    done = ask(database_url, lambda engine: engine.revoke_token(parsed, actor=user_at_host()))
    if as_json:
        print_json(done)
        return
    console.print(f"revoked {escape(done.label)}" + (" before" if done.repeated else ""))
