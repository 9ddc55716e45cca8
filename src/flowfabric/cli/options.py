"""Options and arguments that several commands share, so that each has one name and one meaning."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import typer

from flowfabric.cli.completion import complete_kind, complete_lane
from flowfabric.cli.durations import duration
from flowfabric.cli.given_ids import full_id, full_ids
from flowfabric.engine.executions.search_executions import Search
from flowfabric.errors import ValidationError, invalid_input
from flowfabric.instants import check_instant
from flowfabric.states import PublicState

_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?")


def parse_tags(given: list[str]) -> dict[str, str]:
    """Tags given as `area.name=value`; raises `ValidationError(invalid_input)`."""
    tags: dict[str, str] = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals:
            raise invalid_input("tag", item, "must look like area.name=value")
        tags[key] = value
    return tags


def parse_tag(given: str | None) -> tuple[str, str] | None:
    """The key and value of one tag to search for."""
    return None if given is None else next(iter(parse_tags([given]).items()))


def parse_duration(text: str) -> timedelta:
    """A duration such as 90s or 15m; a number alone is seconds."""
    try:
        return duration(text, field="")
    except ValidationError as error:
        raise typer.BadParameter(error.detail.strip()) from None


def parse_instant(text: str) -> datetime:
    """An instant in ISO 8601 with its zone or offset: 2027-01-05T09:00:00Z."""
    try:
        return check_instant(datetime.fromisoformat(text.strip()), field="")
    except (ValueError, ValidationError):
        why = f"{text!r} must look like 2027-01-05T09:00:00Z, with Z or an offset"
        raise typer.BadParameter(why) from None


def _parse_hours(text: str) -> timedelta:
    """A duration such as 90m or 7d; a number alone is hours."""
    return parse_duration(f"{text.strip()}h" if _NUMBER.fullmatch(text.strip()) else text)


# Arguments.

Id = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The execution: {fp:N}:<uuid>, or the uuid alone.", callback=full_id
    ),
]
Ids = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID",
        help="The executions: {fp:N}:<uuid>, or the uuid alone.",
        callback=full_ids,
    ),
]
LaneName = Annotated[
    str,
    typer.Argument(metavar="LANE", help="The name of the lane.", autocompletion=complete_lane),
]

WaitpointId = Annotated[
    str, typer.Argument(metavar="WAITPOINT", help="The waitpoint: its key or its uuid.")
]

# Filters.

State = Annotated[PublicState | None, typer.Option(help="Only in this state.")]
Lane = Annotated[str | None, typer.Option(help="Only on this lane.", autocompletion=complete_lane)]
Kind = Annotated[str | None, typer.Option(help="Only of this kind.", autocompletion=complete_kind)]
Namespace = Annotated[str | None, typer.Option(help="Only in this namespace.")]
Tag = Annotated[str | None, typer.Option(help="Only with this tag: area.name=value.")]
Within = Annotated[
    timedelta | None,
    typer.Option(
        help="Only created within this time: 90m, 7d; a number alone is hours.",
        metavar="DURATION",
        parser=_parse_hours,
    ),
]

Divergent = Annotated[
    bool,
    typer.Option(
        "--divergent", help="Only those whose handlers made other calls than they had recorded."
    ),
]

# Of commands that change something.

Reason = Annotated[str | None, typer.Option(help="Why; stored with the event.")]


def _search(
    state: State = None,
    lane: Lane = None,
    kind: Kind = None,
    namespace: Namespace = None,
    tag: Tag = None,
    within: Within = None,
) -> Search:
    return Search(
        namespace=namespace,
        lane_id=lane,
        execution_kind=kind,
        public_state=state,
        tag=parse_tag(tag),
        created_within=within,
    )


def takes_search(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of a search in place of its parameter `search`."""
    own = inspect.signature(command, eval_str=True)
    options = inspect.signature(_search, eval_str=True).parameters

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in options}
        command(search=_search(**chosen), **given)

    parameters: list[inspect.Parameter] = []
    for name, parameter in own.parameters.items():
        parameters += options.values() if name == "search" else [parameter]
    vars(with_options)["__signature__"] = own.replace(parameters=parameters)
    with_options.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_options
