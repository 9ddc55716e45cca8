"""What a proof reached, beside what it was to reach, and the table of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table


class Figure(msgspec.Struct, frozen=True):
    """One number of one promise."""

    promise: str
    what: str
    reached: str
    target: str
    held: bool
    skipped: bool = False
    """It could not be measured here, and `reached` says why; no failure, and no proof either."""


class Row(msgspec.Struct, frozen=True):
    """A figure, the proof that it came from and the seconds which that took."""

    proof: str
    figure: Figure
    seconds: float


def table(rows: Sequence[Row]) -> Table:
    """Promise, figure reached, target, seconds; the seconds of a proof stand at its first row."""
    drawn = Table(title="What was proven", title_justify="left", expand=False)
    for heading in ("promise", "proof", "what", "reached", "target", "held"):
        drawn.add_column(heading)
    drawn.add_column("seconds", justify="right")
    before = ""
    for row in rows:
        figure = row.figure
        drawn.add_row(
            figure.promise,
            row.proof,
            figure.what,
            figure.reached,
            figure.target,
            "not run" if figure.skipped else "yes" if figure.held else "NO",
            "" if row.proof == before else f"{row.seconds:.0f}",
            style="dim" if figure.skipped else None if figure.held else "bold red",
        )
        before = row.proof
    return drawn


def show(rows: Sequence[Row]) -> None:
    """Print the table, as wide as it needs to be where nobody looks at a terminal."""
    console = Console()
    Console(width=None if console.is_terminal else 160).print(table(rows))
