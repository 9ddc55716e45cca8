"""Charts of what has ended, how long it waited and how long it ran."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from flowfabric.dashboard.charts.bars import bars
from flowfabric.dashboard.charts.chart import Chart, Series, round_time
from flowfabric.dashboard.charts.lines import lines
from flowfabric.dashboard.view.durations import length
from flowfabric.engine.activity.read_activity import Activity

OUTCOMES: Final = (
    ("success", "f-green"),
    ("failed", "f-red"),
    ("cancelled", "f-brown"),
    ("expired", "f-amber"),
    ("skipped", "f-grey"),
)
_TIMES: Final = (
    ("wait p50", "f-grey", "waited_p50"),
    ("wait p95", "f-amber", "waited_p95"),
    ("run p50", "f-teal", "ran_p50"),
    ("run p95", "f-blue", "ran_p95"),
)


def _labels(activity: Activity, within: timedelta) -> list[str]:
    form = "%H:%M" if within <= timedelta(days=1) else "%m-%d %H:%M"
    return [each.begins_at.strftime(form) for each in activity.steps]


def ended_chart(activity: Activity, within: timedelta) -> Chart:
    """What ended in each step, by outcome."""
    series = [
        Series(
            name=outcome,
            look=look,
            values=[float(each.ended.get(outcome, 0)) for each in activity.steps],
        )
        for outcome, look in OUTCOMES
        if activity.whole.ended.get(outcome)
    ]
    caption = f"Executions that ended in the last {length(within)}"
    return bars(caption, _labels(activity, within), series)


def times_chart(activity: Activity, within: timedelta) -> Chart:
    """How long the ended executions waited for their first start, and how long they ran last."""
    series = [
        Series(name=name, look=look, values=[getattr(each, field) for each in activity.steps])
        for name, look, field in _TIMES
    ]
    caption = f"Waiting and running time in the last {length(within)}"
    return lines(caption, _labels(activity, within), series, written=length, rounded=round_time)
