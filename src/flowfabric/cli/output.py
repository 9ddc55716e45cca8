"""What commands print: tables for people, JSON for programs, messages on standard error."""

from __future__ import annotations

import os
import re
import sys
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
import typer
from rich import markup
from rich.console import Console
from rich.table import Table

from flowfabric.states import PublicState
from flowfabric.wire import wire

console: Final = Console(highlight=False, width=None if sys.stdout.isatty() else 160)

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        envvar="FF_DATABASE_URL",
        show_envvar=True,
        help="URL of the Postgres database.",
        metavar="URL",
    ),
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The execution id: {fp:N}:<uuid>.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
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


def complain(message: str) -> None:
    """Print a message as one line on standard error."""
    sys.stderr.write(f"ff: {visible(' '.join(message.split()))}\n")


def table(*columns: str, title: str | None = None) -> Table:
    """An empty table with these columns."""
    made = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold", no_wrap=column == "execution")
    return made


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
