"""`ff lanes`: list lanes, show one; pause, resume, drain, disable; set the retention."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Final

import typer

from flowfabric.cli.connection import ask
from flowfabric.cli.durations import duration, spoken
from flowfabric.cli.options import LaneName
from flowfabric.cli.output import (
    AsJson,
    Cursor,
    DatabaseUrl,
    console,
    escape,
    listing,
    more,
    options_follow,
    page_by_lane,
    print_json,
)
from flowfabric.client.identity import user_at_host
from flowfabric.engine.lanes.count_by_lane import LaneCount
from flowfabric.engine.lanes.set_lane_retention import KEEP
from flowfabric.errors import NotFound
from flowfabric.ids import check_lane
from flowfabric.policy import DEFAULT_RETENTION
from flowfabric.states import LaneState

app = typer.Typer(help="List lanes and change their state: pause, resume, drain, disable.")

_HELD_BACK: Final = ("suspended", "waiting_children", "rate_limited", "blocked")
Reason = Annotated[str | None, typer.Option(help="Why; stored with the lane.")]


@app.callback(invoke_without_command=True)
def lanes(
    context: typer.Context, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """List lanes with their states and how many executions wait, are delayed and run."""
    if context.invoked_subcommand is not None:
        options_follow(context, as_json, database_url)
        return
    _list(database_url, None, None, None, as_json)


@app.command("list")
def list_(
    state: Annotated[LaneState | None, typer.Option(help="Only in this state.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Show at most this many.")] = None,
    cursor: Cursor = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List lanes with their states and how many executions wait, are delayed and run."""
    _list(database_url, state, limit, cursor, as_json)


def _list(
    database_url: str | None,
    state: LaneState | None,
    limit: int | None,
    cursor: str | None,
    as_json: bool,
) -> None:
    every = ask(database_url, lambda engine: engine.count_by_lane())
    wanted = [lane for lane in every if state in (None, lane.lane_state)]
    found, next_cursor = page_by_lane(wanted, cursor, limit)
    if as_json:
        print_json({"lanes": found, "next_cursor": next_cursor})
        return
    shown = listing(
        found,
        "lane_id",
        "lane_state",
        "waiting",
        "delayed",
        "active",
        *_HELD_BACK,
        "oldest_waiting_since",
        "retention",
        lane_state=_state,
        retention=lambda lane: _kept(lane.retention),
        **{field: _unless_zero(field) for field in _HELD_BACK},
    )
    none = "No such lanes." if every else "No lanes yet: they appear with the first execution."
    console.print(shown if found else none)
    more(next_cursor)


def _unless_zero(field: str) -> Callable[[LaneCount], str]:
    return lambda lane: str(getattr(lane, field) or "")


@app.command()
def show(lane: LaneName, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one lane: what its state means, and how many of its executions have not ended."""
    found = _find(database_url, lane)
    if as_json:
        print_json(found)
        return
    console.print(f"{escape(found.lane_id)}: {_state(found)}", soft_wrap=True)
    console.print(f"  {_meaning(found)}", soft_wrap=True)
    parts = [f"{n} {word}" for word, n in _counts(found).items() if n]
    console.print(f"  {found.left} not ended" + (f": {', '.join(parts)}" if parts else ""))
    console.print(f"  ended executions are kept: {_kept(found.retention)}")


@app.command()
def pause(
    lane: LaneName, reason: Reason = None, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Start none: running executions finish, new ones are accepted and wait."""
    _set(database_url, lane, LaneState.PAUSED, reason, as_json)


@app.command()
def resume(
    lane: LaneName, reason: Reason = None, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Make the lane active again, after pause, drain or disable."""
    _set(database_url, lane, LaneState.ACTIVE, reason, as_json)


@app.command()
def drain(
    lane: LaneName, reason: Reason = None, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Refuse new executions and replays, and run those that the lane has until it is empty."""
    _set(database_url, lane, LaneState.DRAINING, reason, as_json)
    if not as_json:
        console.print(_meaning(_find(database_url, lane)), soft_wrap=True)


@app.command()
def disable(
    lane: LaneName, reason: Reason = None, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Refuse new executions and start none; running executions finish."""
    _set(database_url, lane, LaneState.DISABLED, reason, as_json)


@app.command()
def keep(
    lane: LaneName,
    length: Annotated[
        str, typer.Argument(metavar="DURATION", help="12h, 7d, …, `ever` or `default`.")
    ],
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Set how long executions of the lane are kept after their end."""
    retention = {"ever": timedelta(seconds=KEEP), "default": None}.get(length, ...)
    if retention is ...:
        retention = duration(length, field="DURATION")
    ask(
        database_url,
        lambda engine: engine.set_lane_retention(lane, retention, actor=user_at_host()),
    )
    if as_json:
        print_json({"lane_id": lane, "retention": retention})
    else:
        console.print(f"lane {escape(lane)} keeps ended executions: {_kept(retention)}")


def _state(lane: LaneCount) -> str:
    if lane.lane_state is LaneState.ACTIVE:
        return "active"
    reason = f": {escape(lane.state_reason)}" if lane.state_reason else ""
    return f"[yellow]{lane.lane_state.value}[/] by {escape(lane.state_changed_by or '')}{reason}"


def _meaning(lane: LaneCount) -> str:
    """The state of a lane in words: does it take work, does it start work, how much is left?"""
    match lane.lane_state:
        case LaneState.ACTIVE:
            return "takes new executions and starts them"
        case LaneState.PAUSED:
            return "takes new executions and starts none"
        case LaneState.DRAINING if lane.left:
            return f"takes no new executions; {lane.left} left to run until it is empty"
        case LaneState.DRAINING:
            return "takes no new executions, and is empty: safe to take away"
        case LaneState.DISABLED:
            return "takes no new executions and starts none"


def _counts(lane: LaneCount) -> dict[str, int]:
    return {
        "waiting": lane.waiting,
        "delayed": lane.delayed,
        "active": lane.active,
        "suspended": lane.suspended,
        "waiting for others": lane.waiting_children,
        "rate limited": lane.rate_limited,
        "blocked": lane.blocked,
    }


def _find(database_url: str | None, lane: str) -> LaneCount:
    check_lane(lane)
    for found in ask(database_url, lambda engine: engine.count_by_lane()):
        if found.lane_id == lane:
            return found
    raise NotFound("lane", lane)


def _kept(retention: timedelta | None) -> str:
    if retention is None:
        return f"{spoken(DEFAULT_RETENTION)} (default)"
    return "for ever" if retention == timedelta(seconds=KEEP) else spoken(retention)


def _set(
    database_url: str | None, lane: str, state: LaneState, reason: str | None, as_json: bool
) -> None:
    answer = ask(
        database_url,
        lambda engine: engine.set_lane_state(lane, state, actor=user_at_host(), reason=reason),
    )
    if as_json:
        print_json(answer)
        return
    already = "already " if answer.old_state is answer.lane_state else ""
    console.print(f"lane {escape(lane)} is {already}{answer.lane_state.value}")
