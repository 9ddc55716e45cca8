"""`ff budgets`: list budgets, show one; create, change limits, reset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from flowfabric.cli.connection import ask
from flowfabric.cli.durations import duration
from flowfabric.cli.output import (
    AsJson,
    Cursor,
    DatabaseUrl,
    Limit,
    ago,
    console,
    escape,
    moment,
    more,
    options_follow,
    print_json,
    say,
    table,
)
from flowfabric.client.identity import user_at_host
from flowfabric.engine.budgets.create_budget import BudgetCreated
from flowfabric.engine.budgets.status import BudgetStatus
from flowfabric.errors import invalid_input
from flowfabric.states import EnforcementMode

app = typer.Typer(help="List budgets with what is used of them; create, change and reset them.")

_WIDTH = 20
"""The width of a bar."""
BudgetName = Annotated[
    str, typer.Argument(metavar="BUDGET", help="The name of the budget, or its id.")
]
Hard = Annotated[
    list[str] | None,
    typer.Option("--hard", metavar="DIM=N", help="At most so much; 0: no limit. Repeatable."),
]
Soft = Annotated[
    list[str] | None,
    typer.Option("--soft", metavar="DIM=N", help="Warn above this; 0: no limit. Repeatable."),
]
Every = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="The length of a period: 12h, 7d, …; 0: no periods."),
]
Mode = Annotated[
    EnforcementMode | None, typer.Option(help="What a hard limit does: refuse, or only warn.")
]


@app.callback(invoke_without_command=True)
def budgets(
    context: typer.Context, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """List budgets with what is used of them."""
    if context.invoked_subcommand is not None:
        options_follow(context, as_json, database_url)
        return
    _list(database_url, 100, None, as_json)


@app.command("list")
def list_(
    limit: Limit = 100,
    cursor: Cursor = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List budgets with what is used of them."""
    _list(database_url, limit, cursor, as_json)


def _list(database_url: str | None, limit: int, cursor: str | None, as_json: bool) -> None:
    page = ask(database_url, lambda engine: engine.list_budgets(cursor=cursor, limit=limit))
    if as_json:
        print_json(page)
        return
    if not page.budgets:
        console.print("No budgets. Create one: ff budgets create NAME --hard tokens=100000")
        return
    shown = table("budget", "dimension", "used", "", "next_reset_at")
    for each in page.budgets:
        name: str = escape(_name(each))
        reset = ago(each.next_reset_at)
        for dimension in _dimensions(each) or [""]:
            bar, used = _use(each, dimension)
            shown.add_row(name, escape(dimension), used, bar, reset)
            name = reset = ""
    console.print(shown)
    more(page.next_cursor)


@app.command()
def show(budget: BudgetName, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one budget: use and limits of each dimension, breaches, and when it is reset."""
    found = ask(database_url, lambda engine: engine.get_budget_status(budget))
    if as_json:
        print_json(found)
        return
    spent = found.spent and found.enforcement_mode is EnforcementMode.STRICT
    state = ", [red]spent[/]: work that is attached to it is held back" if spent else ""
    console.print(f"{escape(_name(found))}: {found.enforcement_mode.value}{state}", soft_wrap=True)
    console.print(f"  id {found.budget_id}")
    if found.scope_type != "global":
        console.print(f"  {escape(found.scope_type)} {escape(found.scope_id)}", soft_wrap=True)
    shown = table("dimension", "used", "", "soft limit")
    for dimension in _dimensions(found):
        bar, used = _use(found, dimension)
        soft = found.soft_limits.get(dimension)
        shown.add_row(escape(dimension), used, bar, f"{soft:,}" if soft else "")
    console.print(shown)
    console.print(f"  breaches: {found.breach_count} hard, {found.soft_breach_count} soft")
    if found.last_breach_at is not None:
        last = f"{moment(found.last_breach_at)} UTC, {escape(found.last_breach_dim or '')}"
        console.print(f"  last hard breach: {last}", soft_wrap=True)
    if found.next_reset_at is not None:
        console.print(f"  next reset: {moment(found.next_reset_at)} UTC")


@app.command()
def create(
    budget: BudgetName,
    hard: Hard = None,
    soft: Soft = None,
    every: Every = None,
    mode: Mode = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Create a budget; one that exists keeps its definition."""
    hard_limits, soft_limits = _amounts("--hard", hard), _amounts("--soft", soft)
    dimensions = list({**hard_limits, **soft_limits})
    if not dimensions:
        raise invalid_input("--hard", None, "is needed: a budget has at least one limit")
    answer = ask(
        database_url,
        lambda engine: engine.create_budget(
            budget,
            dimensions=dimensions,
            hard_limits=[hard_limits.get(each, 0) for each in dimensions],
            soft_limits=[soft_limits.get(each, 0) for each in dimensions],
            enforcement_mode=mode or EnforcementMode.STRICT,
            reset_interval=0 if every is None else duration(every, field="--every"),
            scope_id=budget,
            actor=user_at_host(),
        ),
    )
    if isinstance(answer, BudgetCreated):
        said = f"budget {budget} is created"
    else:
        same = "with this definition" if answer.same_definition else "with another definition"
        said = f"budget {budget} exists already, {same}"
    say(answer, said, as_json)


@app.command()
def limits(
    budget: BudgetName,
    hard: Hard = None,
    soft: Soft = None,
    every: Every = None,
    mode: Mode = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Change limits; what is not named stays. Work that has room now can run at once."""
    hard_limits, soft_limits = _amounts("--hard", hard), _amounts("--soft", soft)
    if not (hard_limits or soft_limits) and every is None and mode is None:
        raise invalid_input("options", None, "are missing: name what changes, as --hard")
    answer = ask(
        database_url,
        lambda engine: engine.update_budget_limits(
            budget,
            hard_limits=hard_limits,
            soft_limits=soft_limits,
            reset_interval=None if every is None else duration(every, field="--every"),
            enforcement_mode=mode,
            actor=user_at_host(),
        ),
    )
    shown = ", ".join(f"{name} {amount}" for name, amount in answer.hard_limits.items())
    say(answer, f"budget {budget} has the hard limits: {shown or 'none'}", as_json)


@app.command()
def reset(budget: BudgetName, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Begin a new period now: nothing is used, and work that was held back can run."""
    answer = ask(database_url, lambda engine: engine.reset_budget(budget, actor=user_at_host()))
    following = ""
    if answer.next_reset_at is not None:
        following = f"; the next reset is at {moment(answer.next_reset_at)} UTC"
    say(answer, f"budget {budget} is reset{following}", as_json)


def _amounts(option: str, given: Sequence[str] | None) -> dict[str, int]:
    """`dimension=number` of each; raises `ValidationError` that names the option."""
    amounts: dict[str, int] = {}
    for item in given or ():
        name, equals, number = item.rpartition("=")
        if not equals or not name or not number.isascii() or not number.isdecimal():
            raise invalid_input(option, item, "must look like tokens=100000")
        if name in amounts:
            raise invalid_input(option, name, "is named twice")
        amounts[name] = int(number)
    return amounts


def _name(budget: BudgetStatus) -> str:
    return budget.scope_id or str(budget.budget_id)


def _dimensions(budget: BudgetStatus) -> list[str]:
    return sorted({**budget.hard_limits, **budget.soft_limits, **budget.usage})


def _use(budget: BudgetStatus, dimension: str) -> tuple[str, str]:
    """The bar of a dimension, if it has a limit, and what is used of it in numbers."""
    used = budget.usage.get(dimension, 0)
    hard, soft = budget.hard_limits.get(dimension, 0), budget.soft_limits.get(dimension, 0)
    limit = hard or soft
    if not limit:
        return "", f"{used:,}"
    part = min(1.0, used / limit)
    colour = "green"
    if soft and used > soft:
        colour = "yellow"
    if hard and used >= hard:
        colour = "red"
    filled = round(part * _WIDTH)
    bar = f"[{colour}]{'█' * filled}[/]{'░' * (_WIDTH - filled)} {used / limit:.0%}"
    return bar, f"{used:,} of {limit:,}"
