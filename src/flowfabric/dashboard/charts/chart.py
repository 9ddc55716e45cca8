"""What charts share: series, the table of the figures, the frame with its scale."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from flowfabric.dashboard.graph.words import text

WIDTH: Final = 640
HEIGHT: Final = 176
LEFT: Final = 66
TOP: Final = 10
BOTTOM: Final = 22
INNER: Final = WIDTH - LEFT - 6
PLOT: Final = HEIGHT - TOP - BOTTOM
_CLASS: Final = re.compile(r"[a-z][a-z0-9_-]*")

Written = Callable[[float], str]
"""A figure as text."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one name; `look` is the class that colours them, a word of ours."""

    name: str
    look: str
    values: Sequence[float | None]

    def __post_init__(self) -> None:
        check_class(self.look)


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """The figures behind a chart."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """The drawing, and the same as a table."""

    svg: str
    table: Table
    legend: Sequence[tuple[str, str]] = ()
    """Class and name of each series."""
    is_empty: bool = False
    left_out: int = 0
    """Rows that there are and that are not drawn."""


def check_class(name: str) -> None:
    """Raises `ValueError` for a class that is not a plain word."""
    if _CLASS.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not a class")


def plain(value: float) -> str:
    """A figure with separators: `1,250`, `0.25`."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3g}"


_UNITS: Final = ((10**9, "G"), (10**6, "M"), (10**3, "k"))


def short(value: float) -> str:
    """A figure that has room beside a chart: `1.5M`, `500k`, `250`, `0.25`."""
    for unit, letter in _UNITS:
        if abs(value) >= 10 * unit or (unit > 1000 and abs(value) >= unit):
            return f"{value / unit:.3g}{letter}"
    return plain(value)


def round_top(highest: float) -> float:
    """The next round figure at or above: 1, 2, 5 or 10 times a power of ten."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in (1, 2, 5, 10) if highest <= step * power * (1 + 1e-12))


_TIMES: Final = (20, 60, 120, 240, 600, 1200, 3600, 7200, 14_400, 43_200, 86_400)


def round_time(highest: float) -> float:
    """The next duration in seconds at or above whose half reads well too: 1 m, 20 m, 12 h."""
    if highest <= _TIMES[0]:
        return round_top(highest)
    days = _TIMES[-1]
    return next((each for each in _TIMES if highest <= each), days * round_top(highest / days))


def frame(
    caption: str, kind: str, labels: Sequence[str], top: float, written: Written, body: str
) -> str:
    """The SVG element: the scale at the left, first, middle and last label below, the body."""
    parts = [
        f'<svg class="chart {kind}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{text(caption)}">'
    ]
    for share in (0.0, 0.5, 1.0):
        y = TOP + PLOT * (1 - share)
        parts.append(
            f'<path class="grid" d="M{LEFT} {y:g}h{INNER}"/>'
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4:g}">{text(written(top * share))}</text>'
        )
    for place, anchor in ((0, "start"), (len(labels) // 2, "middle"), (len(labels) - 1, "end")):
        if 0 <= place < len(labels) and (place or anchor == "start"):
            x = {"start": LEFT, "middle": LEFT + INNER / 2, "end": LEFT + INNER}[anchor]
            parts.append(
                f'<text class="when" text-anchor="{anchor}" x="{x:g}" y="{HEIGHT - 4}">'
                f"{text(labels[place])}</text>"
            )
    return "".join([*parts, body, "</svg>"])


def table(caption: str, labels: Sequence[str], series: Sequence[Series], written: Written) -> Table:
    """One row for each label, one column for each series."""
    return Table(
        caption=caption,
        head=["", *(each.name for each in series)],
        rows=[
            [label, *("" if each is None else written(each) for each in figures)]
            for label, *figures in zip(labels, *(each.values for each in series), strict=True)
        ],
    )
