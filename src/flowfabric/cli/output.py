"""What commands print: tables for people, JSON for programs, messages on standard error."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Protocol, TypeVar, cast

import msgspec
import typer
from rich import markup
from rich.console import Console
from rich.table import Table

from flowfabric.cli.durations import spoken
from flowfabric.states import LeaseEventReason, PublicState
from flowfabric.wire import wire


class _OfLane(Protocol):
    @property
    def lane_id(self) -> str: ...


T = TypeVar("T", bound=_OfLane)

console: Final = Console(highlight=False, width=None if sys.stdout.isatty() else 160)

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        envvar="FF_DATABASE_URL",
        show_envvar=True,
        is_eager=True,  # an id is looked up in it while the other arguments are read
        help="URL of the Postgres database.",
        metavar="URL",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.", metavar="")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="Show at most this many.")]
Cursor = Annotated[
    str | None, typer.Option(help="Continue after the last page: the cursor that it printed.")
]

_COLOURS: Final = {
    PublicState.COMPLETED: "green",
    PublicState.ACTIVE: "cyan",
    PublicState.FAILED: "red",
    PublicState.CANCELLED: "magenta",
    PublicState.EXPIRED: "red",
    PublicState.DELAYED: "yellow",
}


_MAYBE_ACTING: Final = re.compile(r"[^\n\t\x20-\x7e]")
_GAP: Final = 2
"""The space between two columns."""
_IDS: Final = frozenset({"execution", "execution_id", "flow_id", "subject"})
_UNBROKEN: Final = frozenset({"execution", "execution_id", "flow_id", "at", "event"})
_TITLES: Final = {"at": "at (UTC)"}
"""The titles of columns that are not named as in JSON alone."""
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def options_follow(context: typer.Context, *given: object) -> None:
    """Raise if options were given to a group before its command, where they have no effect."""
    from_environment = os.environ.get("FF_DATABASE_URL")
    if any(each not in (None, False, from_environment) for each in given):
        raise typer.BadParameter(
            f"put the options after the command: {context.info_name} {context.invoked_subcommand} …"
        )


def counted(number: int, noun: str) -> str:
    """`1 execution`, `2 executions`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def visible(text: str) -> str:
    """The text with `\\x1b` and the like for what would act on a terminal instead of showing.

    Names, reasons and results come from clients. Line breaks and tabs stay.
    """
    return _MAYBE_ACTING.sub(
        lambda found: (
            found[0] if found[0].isprintable() else found[0].encode("unicode_escape").decode()
        ),
        text,
    )


def escape(text: str) -> str:
    """The text as it is printed by the console: visible, and without the meaning of markup."""
    return markup.escape(visible(text))


def json_text(value: object, *, indent: int | None = None) -> str:
    """The value as JSON, in which everything that is not printable is escaped."""
    encoded = msgspec.json.encode(wire(value))
    text = (encoded if indent is None else msgspec.json.format(encoded, indent=indent)).decode()
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_json(value: object) -> None:
    """Print the value as indented JSON on standard output."""
    sys.stdout.write(json_text(value, indent=2) + "\n")


def say(answer: object, said: str, as_json: bool) -> None:
    """Print the sentence or, with `--json`, the answer."""
    if as_json:
        print_json(answer)
    else:
        console.print(visible(said), soft_wrap=True, markup=False)


def complain(message: str) -> None:
    """Print a message as one line on standard error."""
    sys.stderr.write(f"ff: {visible(' '.join(message.split()))}\n")


def table(*columns: str, title: str | None = None) -> Table:
    """An empty table with these columns."""
    made = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for column in columns:
        title = _TITLES.get(column, column)
        made.add_column(title, overflow="fold", no_wrap=column in _UNBROKEN)
    return made


def listing(
    rows: Sequence[msgspec.Struct],
    *fields: str,
    **cells: Callable[[Any], str],
) -> Table:
    """The rows as a table of these fields, which have the names that they have in JSON.

    The value of a field is written by its type, or by `cells`, which makes markup from the row.
    Fields that no row has are left out. Where a terminal has no room, ids are uuids alone, and then
    the last fields are left out.
    """
    shown = {
        field: [cells[field](row) if field in cells else _cell(getattr(row, field)) for row in rows]
        for field in fields
    }
    kept = [field for field in fields if field == fields[0] or any(shown[field])]
    if _width(shown, kept) > console.width:
        shown |= {field: _short_ids(shown[field]) for field in kept if field in _IDS}
    while len(kept) > 2 and _width(shown, kept) > console.width:
        kept.pop()
    made = table(*kept)
    for row in zip(*(shown[field] for field in kept), strict=True):
        made.add_row(*row)
    left_out = [field for field in fields if field not in kept and any(shown[field])]
    if left_out:
        made.caption = f"No room for {', '.join(left_out)}: see --json."
        made.caption_justify = "left"
    return made


def _cell(value: object) -> str:
    """The markup for a value in a table."""
    match value:
        case None | {} | []:
            return ""
        case bool():
            return "yes" if value else "no"
        case PublicState():
            return coloured(value)
        case datetime():
            return ago(value)
        case timedelta():
            return spoken(value)
        case str():
            return escape(cut(value))
        case dict():
            return escape(cut(facts_text(cast("dict[str, object]", value))))
        case list():
            return escape(cut(", ".join(str(each) for each in cast("list[object]", value))))
        case _:
            return escape(str(wire(value)))


def facts_text(facts: Mapping[str, object]) -> str:
    """`name=value, …` of the facts that are known."""
    return ", ".join(f"{name}={each}" for name, each in facts.items() if each is not None)


def lease_reason(reason: str | None) -> str:
    """Why a lease ended, in words."""
    if reason == LeaseEventReason.DISCONNECTED:
        return "the worker's connection ended"
    return "the worker gave it back" if reason == LeaseEventReason.RELEASED else reason or ""


def moment(at: datetime) -> str:
    """The instant in UTC, for a column `at`, whose title says so."""
    return f"{at:%Y-%m-%d %H:%M:%S}"


def _short_ids(column: Sequence[str]) -> list[str]:
    return [cell.rpartition("}:")[2] for cell in column]


def _width(shown: Mapping[str, Sequence[str]], kept: Sequence[str]) -> int:
    """The width that these columns need if their texts are broken at words."""
    return sum(_least(each, shown[each]) + _GAP for each in kept) - _GAP


def _least(title: str, column: Sequence[str]) -> int:
    """The width that a column needs if its texts are broken at words."""
    texts = [markup.render(cell).plain for cell in column]
    words = [text if title in _UNBROKEN else word for text in texts for word in text.split()]
    return max(len(word) for word in [_TITLES.get(title, title), *words])


def cut(text: str, length: int = 80) -> str:
    """The text on one line, cut after a word with `…` if it is longer."""
    line = " ".join(text.split())
    if len(line) <= length:
        return line
    whole = line[: length - 1].rpartition(" ")[0]
    kept = whole if len(whole) > length // 2 else line[: length - 2]
    return f"{kept.rstrip(',;:')} …"


def page_by_lane(
    found: Sequence[T], cursor: str | None, limit: int | None
) -> tuple[list[T], str | None]:
    """The rows after the lane `cursor`, at most `limit`, and the cursor of the next page."""
    rest = [each for each in found if cursor is None or each.lane_id > cursor]
    page = rest[:limit]
    return page, page[-1].lane_id if len(rest) > len(page) else None


def more(next_cursor: object | None) -> None:
    """Say how the next page is shown, if there is one."""
    if next_cursor is not None:
        console.print(f"More: --cursor {escape(str(next_cursor))}", soft_wrap=True)


def coloured(state: PublicState) -> str:
    """The state with the markup of its colour."""
    colour = _COLOURS.get(state)
    return f"[{colour}]{state.value}[/]" if colour else state.value


def ago(moment: datetime | None) -> str:
    """The time since or until a moment: `5m ago`, `in 2h`; empty for None."""
    if moment is None:
        return ""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    size = abs(seconds)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if size >= length or unit == "s":
            text = f"{size / length:.0f}{unit}"
            return f"{text} ago" if seconds >= 0 else f"in {text}"
    raise AssertionError("unreachable")
