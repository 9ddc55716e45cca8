"""Charts of what was used of a budget, one for each dimension: their scales differ."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from flowfabric.dashboard.charts.chart import Chart, Series
from flowfabric.dashboard.charts.lines import lines
from flowfabric.dashboard.view.durations import length
from flowfabric.engine.budgets.read_budget_history import BudgetHistory

_SHOWN: Final = 6
_FAR: Final = 4
"""A limit so many times above everything that was used would press the line to the floor."""


def usage_charts(
    history: BudgetHistory, limits: Sequence[tuple[str, int, int]], within: timedelta
) -> list[tuple[str, Chart]]:
    """Name and chart of the first dimensions that have a history; limits are name, soft, hard.

    A limit is drawn while what was used is within sight of it.
    """
    form = "%H:%M" if within <= timedelta(days=1) else "%m-%d %H:%M"
    labels = [each.strftime(form) for each in history.begins_at]
    found: list[tuple[str, Chart]] = []
    for name, soft, hard in limits:
        used = history.used.get(name)
        if used is None or len(found) == _SHOWN:
            continue
        highest = max((each for each in used if each is not None), default=0)
        series = [Series(name="used", look="f-blue", values=used)]
        for word, look, limit in (("warns at", "f-amber", soft), ("limit", "f-red", hard)):
            if 0 < limit <= highest * _FAR:
                series.append(Series(name=word, look=look, values=[limit] * len(used)))
        found.append((name, lines(f"{name} used in the last {length(within)}", labels, series)))
    return found
