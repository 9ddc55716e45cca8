"""A strip over time: rows of spans, with marks for what happened at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from flowfabric.dashboard.charts.chart import Chart, Table, check_class
from flowfabric.dashboard.graph.words import cut, text

WIDTH: Final = 960
NAMES: Final = 168
_ROW: Final = 22
_BAR: Final = 12
_TOP: Final = 8
_SCALE: Final = 22
_LETTERS: Final = 24


class StripSpan(msgspec.Struct, frozen=True, kw_only=True):
    """From one moment to another, in seconds since the beginning of the strip."""

    start: float
    end: float
    look: str
    """The class that colours it, a word of ours."""
    title: str
    href: str | None = None

    def __post_init__(self) -> None:
        check_class(self.look)


class StripMark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened at one moment."""

    at: float
    look: str
    title: str

    def __post_init__(self) -> None:
        check_class(self.look)


class StripRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a strip."""

    name: str
    spans: Sequence[StripSpan]
    marks: Sequence[StripMark] = ()
    href: str | None = None


def strip(
    caption: str, rows: Sequence[StripRow], *, seconds: float, ticks: Sequence[str] = ()
) -> Chart:
    """The rows one below the other, all on one scale of `seconds`.

    `ticks` are texts at equal distances from the beginning to the end.
    """
    plot = WIDTH - NAMES - 8
    scale = plot / seconds if seconds > 0 else 0.0
    high = _TOP + len(rows) * _ROW + (_SCALE if ticks else _TOP)
    parts = [
        f'<svg class="chart strip" viewBox="0 0 {WIDTH} {high}" role="group"'
        f' aria-label="{text(caption)}">'
    ]
    for place, tick in enumerate(ticks):
        share = place / max(len(ticks) - 1, 1)
        x, anchor = NAMES + share * plot, "start" if not place else "middle"
        anchor = "end" if place and place == len(ticks) - 1 else anchor
        parts.append(
            f'<path class="grid" d="M{x:.1f} {_TOP - 4}v{len(rows) * _ROW + 4}"/>'
            f'<text class="when" text-anchor="{anchor}" x="{x:.1f}" y="{high - 6}">'
            f"{text(tick)}</text>"
        )
    for place, row in enumerate(rows):
        parts.append(_row(row, _TOP + place * _ROW, scale, seconds))
    return Chart(svg="".join([*parts, "</svg>"]), table=_table(caption, rows), is_empty=not rows)


def _row(row: StripRow, y: int, scale: float, seconds: float) -> str:
    name = (
        f'<text class="row" x="0" y="{y + 11}">{text(cut(row.name, _LETTERS))}'
        f"<title>{text(row.name)}</title></text>"
    )
    parts = [_linked(name, row.href)]
    for span in row.spans:
        start, end = max(span.start, 0.0), min(max(span.end, span.start), seconds)
        wide = max((end - start) * scale, 1.5)
        drawn = (
            f'<rect class="span {span.look}" x="{NAMES + start * scale:.1f}" y="{y}"'
            f' width="{wide:.1f}" height="{_BAR}" rx="2"><title>{text(span.title)}</title></rect>'
        )
        parts.append(_linked(drawn, span.href))
    for mark in row.marks:
        at = NAMES + min(max(mark.at, 0.0), seconds) * scale
        parts.append(
            f'<path class="mark {mark.look}" d="M{at:.1f} {y - 3}l4 4-4 4-4-4z">'
            f"<title>{text(mark.title)}</title></path>"
        )
    return "".join(parts)


def _linked(drawn: str, href: str | None) -> str:
    return drawn if href is None else f'<a href="{text(href)}">{drawn}</a>'


def _table(caption: str, rows: Sequence[StripRow]) -> Table:
    return Table(
        caption=caption,
        head=["", "what", "from", "to"],
        rows=[
            *(
                [row.name, span.title, f"{span.start:.3f} s", f"{span.end:.3f} s"]
                for row in rows
                for span in row.spans
            ),
            *([row.name, mark.title, f"{mark.at:.3f} s", ""] for row in rows for mark in row.marks),
        ],
    )
