"""Lines: how figures went over time; a step without a figure is a gap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from flowfabric.dashboard.charts.chart import (
    INNER,
    LEFT,
    PLOT,
    TOP,
    Chart,
    Series,
    Written,
    check_class,
    frame,
    plain,
    round_top,
    short,
    table,
)
from flowfabric.dashboard.graph.words import text

_WIDE: Final = 96
_HIGH: Final = 24
_DOT: Final = "m-1.5 0a1.5 1.5 0 1 0 3 0a1.5 1.5 0 1 0-3 0"


def lines(
    caption: str,
    labels: Sequence[str],
    series: Sequence[Series],
    *,
    written: Written = plain,
    rounded: Callable[[float], float] = round_top,
) -> Chart:
    """A line for each series; raises `ValueError` unless each has a figure for every label."""
    figures = table(caption, labels, series, written)
    top = rounded(max((value or 0 for each in series for value in each.values), default=0))
    step = INNER / max(len(labels) - 1, 1)
    parts: list[str] = []
    for each in series:
        points = [
            None if value is None else (LEFT + place * step, TOP + PLOT * (1 - value / top))
            for place, value in enumerate(each.values)
        ]
        parts.append(
            f'<path class="line {each.look}" d="{_path(points)}">'
            f"<title>{text(each.name)}</title></path>"
        )
    return Chart(
        svg=frame(
            caption, "lines", labels, top, short if written is plain else written, "".join(parts)
        ),
        table=figures,
        legend=[(each.look, each.name) for each in series],
        is_empty=all(value is None for each in series for value in each.values),
    )


def sparkline(caption: str, look: str, values: Sequence[float | None]) -> str:
    """A small line without a scale, for a cell of a table."""
    check_class(look)
    top = max((value or 0 for value in values), default=0) or 1
    step = (_WIDE - 4) / max(len(values) - 1, 1)
    points = [
        None if value is None else (2 + place * step, 2 + (_HIGH - 4) * (1 - value / top))
        for place, value in enumerate(values)
    ]
    return (
        f'<svg class="chart spark" width="{_WIDE}" height="{_HIGH}" viewBox="0 0 {_WIDE} {_HIGH}"'
        f' role="img" aria-label="{text(caption)}">'
        f'<path class="line {look}" d="{_path(points)}"/></svg>'
    )


def _path(points: Sequence[tuple[float, float] | None]) -> str:
    """Lines between neighbouring points; one alone is a dot."""
    parts: list[str] = []
    for place, point in enumerate(points):
        if point is None:
            continue
        starts = place == 0 or points[place - 1] is None
        alone = starts and (place + 1 == len(points) or points[place + 1] is None)
        parts.append(f"{'M' if starts else 'L'}{point[0]:.1f} {point[1]:.1f}")
        if alone:
            parts.append(_DOT)
    return "".join(parts)
