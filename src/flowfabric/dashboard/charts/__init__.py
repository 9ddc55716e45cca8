"""Charts as SVG text, each with the table of its figures: bars, lines, strips, sparklines."""

from flowfabric.dashboard.charts.bars import bars
from flowfabric.dashboard.charts.chart import Chart, Series, Table, round_top
from flowfabric.dashboard.charts.lines import lines, sparkline
from flowfabric.dashboard.charts.strip import StripMark, StripRow, StripSpan, strip

__all__ = [
    "Chart",
    "Series",
    "StripMark",
    "StripRow",
    "StripSpan",
    "Table",
    "bars",
    "lines",
    "round_top",
    "sparkline",
    "strip",
]
