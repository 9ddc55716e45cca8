"""`ff limits list | show | set | delete`: how many executions of a key run, and how fast."""

from __future__ import annotations

from typing import Annotated

import typer

from flowfabric.cli.confirm import confirmed
from flowfabric.cli.connection import ask
from flowfabric.cli.durations import duration, spoken
from flowfabric.cli.output import (
    AsJson,
    DatabaseUrl,
    ago,
    console,
    escape,
    listing,
    options_follow,
    print_json,
    say,
)
from flowfabric.client.identity import user_at_host
from flowfabric.engine.engine import Engine
from flowfabric.engine.quotas.list_quota_keys import QuotaKey
from flowfabric.engine.quotas.quota_policy import QuotaPolicy
from flowfabric.errors import NotFound, invalid_input
from flowfabric.limits import QuotaLimits, Rate, quota_limits

app = typer.Typer(help="Limits per key: how many executions run at once, and how fast they start.")

Name = Annotated[str, typer.Argument(help="The name of the limit.")]
Namespace = Annotated[str, typer.Option(help="The namespace of the limit.")]


@app.callback(invoke_without_command=True)
def limits(
    context: typer.Context, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """List limits."""
    if context.invoked_subcommand is not None:
        options_follow(context, as_json, database_url)
        return
    _list(database_url, None, "default", as_json)


@app.command("list")
def list_(
    limit: Annotated[int | None, typer.Option(min=1, help="Show at most this many.")] = None,
    namespace: Namespace = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the limits of a namespace."""
    _list(database_url, limit, namespace, as_json)


def _list(database_url: str | None, limit: int | None, namespace: str, as_json: bool) -> None:
    policies = ask(database_url, lambda engine: engine.list_quota_policies(namespace=namespace))
    found = policies[:limit]
    if as_json:
        print_json({"limits": found, "next_cursor": None})
        return
    shown = listing(found, "name", "limits", "updated_at", limits=lambda each: _said(each.limits))
    console.print(shown if found else "No limits yet: ff limits set NAME --concurrency 1")


@app.command()
def show(
    name: Name,
    key: Annotated[str | None, typer.Option(help="Show this key only.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Show at most this many keys.")] = 20,
    namespace: Namespace = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show a limit and its keys: what runs, what has started in the window, what is held back."""

    async def read(engine: Engine) -> tuple[QuotaPolicy, list[QuotaKey]]:
        found = await engine.get_quota_policy(name, namespace=namespace)
        if found is None:
            raise NotFound("limit", name)
        keys = await engine.list_quota_keys(name, namespace=namespace, limit_key=key, count=limit)
        return found, keys

    found, keys = ask(database_url, read)
    if as_json:
        print_json({"limit": found, "keys": keys})
        return
    changed = ago(found.updated_at)
    console.print(f"{escape(name)}: {_said(found.limits)} (set {changed})", soft_wrap=True)
    shown = listing(
        keys, "limit_key", "held_slots", "window_count", "claimable", "held_back", "next_at"
    )
    console.print(shown if keys else "  no key is in use")


@app.command("set")
def set_(
    name: Name,
    concurrency: Annotated[
        int | None, typer.Option(help="How many executions of a key may run at once.")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="COUNT/WINDOW", help="How many may start in a window, such as 10/60s."
        ),
    ] = None,
    namespace: Namespace = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Create a limit or change its numbers; what is left out is not limited any more."""
    wanted = quota_limits(concurrency=concurrency, rate=None if rate is None else _rate(rate))

    async def change(engine: Engine) -> QuotaPolicy:
        await engine.create_quota_policy(name, wanted, namespace=namespace, actor=user_at_host())
        return await engine.update_quota_policy(
            name, wanted, namespace=namespace, actor=user_at_host()
        )

    changed = ask(database_url, change)
    say(changed, f"{name}: {_said(changed.limits)}", as_json)


@app.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    namespace: Namespace = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Delete a limit: executions that have it run without it, and new ones are refused."""
    confirmed(f"Delete limit {name!r}? What it holds back runs at once.", yes=yes)
    ask(
        database_url,
        lambda engine: engine.delete_quota_policy(name, namespace=namespace, actor=user_at_host()),
    )
    say({"deleted": name}, f"deleted {name}", as_json)


def _rate(text: str) -> Rate:
    """The rate of `10/60s`; raises `ValidationError`."""
    count, slash, window = text.partition("/")
    if not slash or not count.strip().isdecimal():
        raise invalid_input("--rate", text, "must look like 10/60s")
    return Rate(int(count), per=duration(window, field="--rate"))


def _said(limits: QuotaLimits) -> str:
    """The limits in words."""
    parts = list[str]()
    if limits.max_concurrent:
        parts.append(f"{limits.max_concurrent} at once")
    if limits.max_requests_per_window:
        window = spoken(Rate(1, per=limits.window_seconds).window)
        parts.append(f"{limits.max_requests_per_window} per {window}")
    return ", ".join(parts) or "no limit"
