"""One line of the table: what was measured, and the bar."""

from collections.abc import Sequence
from statistics import median
from typing import Final

import msgspec
from rich.box import SIMPLE_HEAD
from rich.table import Table

TIMES_NOISY: Final = "CPU times and ratios count; times on a shared machine are noisy."


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of one round; `bar` is the most that it may be, None if nothing bounds it.

    With `least` the bar is the least that it may be.
    """

    group: str
    what: str
    value: float
    unit: str
    bar: float | None = None
    least: bool = False

    @property
    def held(self) -> bool:
        if self.bar is None:
            return True
        return self.value >= self.bar if self.least else self.value <= self.bar


def medians(rounds: Sequence[Sequence[Line]]) -> list[Line]:
    """The median of each figure over the rounds that measured it, in the order of the first."""
    values: dict[tuple[str, str], list[float]] = {}
    first: dict[tuple[str, str], Line] = {}
    for lines in rounds:
        for line in lines:
            key = (line.group, line.what)
            values.setdefault(key, []).append(line.value)
            first.setdefault(key, line)
    return [msgspec.structs.replace(line, value=median(values[key])) for key, line in first.items()]


def table(lines: Sequence[Line]) -> Table:
    """All figures with their bars."""
    shown = Table(box=SIMPLE_HEAD, title="The dashboard: medians", title_justify="left")
    shown.add_column("")
    shown.add_column("what")
    for name in ("measured", "bar"):
        shown.add_column(name, justify="right")
    shown.add_column("")
    group = ""
    for line in lines:
        if group and line.group != group:
            shown.add_section()
        verdict = "" if line.bar is None else "[green]held[/]" if line.held else "[red]over[/]"
        shown.add_row(
            line.group if line.group != group else "",
            line.what,
            f"{line.value:,.{2 if line.least else 1}f} {line.unit}",
            "" if line.bar is None else f"{line.bar:,g} {line.unit}",
            verdict,
        )
        group = line.group
    return shown


def percentile(values: Sequence[float], percent: int) -> float:
    """The value below which `percent` of the values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
