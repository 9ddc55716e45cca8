"""Stacked bars: what happened in each step of time."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.dashboard.charts.chart import (
    INNER,
    LEFT,
    PLOT,
    TOP,
    Chart,
    Series,
    Written,
    frame,
    plain,
    round_top,
    short,
    table,
)
from flowfabric.dashboard.graph.words import text


def bars(
    caption: str, labels: Sequence[str], series: Sequence[Series], *, written: Written = plain
) -> Chart:
    """A bar for each label, the series on top of one another in the order given.

    Raises `ValueError` unless every series has a figure for every label.
    """
    figures = table(caption, labels, series, written)
    sums = [sum(each.values[place] or 0 for each in series) for place in range(len(labels))]
    top = round_top(max(sums, default=0))
    step = INNER / max(len(labels), 1)
    wide = max(step - max(min(step * 0.25, 4), 0.5), 0.5)
    parts: list[str] = []
    for place, label in enumerate(labels):
        if not sums[place]:
            continue
        spoken = ", ".join(
            f"{written(each.values[place] or 0)} {each.name}"
            for each in series
            if each.values[place]
        )
        parts.append(f"<g><title>{text(f'{label}: {spoken}')}</title>")
        y = float(TOP + PLOT)
        for each in series:
            high = (each.values[place] or 0) / top * PLOT
            if high > 0:
                y -= high
                parts.append(
                    f'<rect class="{each.look}" x="{LEFT + place * step:.1f}" y="{y:.1f}"'
                    f' width="{wide:.1f}" height="{high:.1f}"/>'
                )
        parts.append("</g>")
    return Chart(
        svg=frame(
            caption, "bars", labels, top, short if written is plain else written, "".join(parts)
        ),
        table=figures,
        legend=[(each.look, each.name) for each in series],
        is_empty=not any(sums),
    )
