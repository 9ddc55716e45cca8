"""The members of a flow over time: one bar each, by their start."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Final

import msgspec

from flowfabric.dashboard.charts import Chart, StripRow, StripSpan, strip
from flowfabric.dashboard.flows.reading import FlowRead
from flowfabric.dashboard.graph import collapse, words
from flowfabric.dashboard.view.durations import length
from flowfabric.engine.flows.list_flow_members import FlowMember

ROWS: Final = 200
_TICKS: Final = 4
_FAILED: Final = frozenset({"s-failed", "s-expired"})
_STACKED: Final = 50
"""Spans of one stack that are drawn at most."""


def timeline(
    read: FlowRead, now: datetime, href: Callable[[str], str], opened: Collection[str]
) -> Chart:
    """The strip of the members that have started, the earliest first, equal ones in one row."""
    began = read.flow.created_at
    ends = [each.terminal_at or now for each in read.members if each.started_at is not None]
    seconds = max(((end - began).total_seconds() for end in ends), default=0.0)
    rows: list[tuple[datetime, StripRow]] = []
    for node in collapse(read.graph, opened=opened).nodes:
        started = [
            (each.started_at, number)
            for number in node.numbers
            if (each := read.members[number]).started_at is not None
        ]
        if not started:
            continue
        started.sort()
        first = read.graph.members[node.numbers[0]]
        name = f"{first.kind} \u00d7 {len(node.numbers):,}" if node.is_stack else first.title
        rows.append(
            (
                started[0][0],
                StripRow(
                    name=name,
                    href=None if node.is_stack else href(node.key),
                    spans=_on_top(
                        [_span(read, number, at, now, href) for at, number in started[:_STACKED]]
                    ),
                ),
            )
        )
    rows.sort(key=lambda row: row[0])
    ticks = ["0", *(length(seconds * place / _TICKS) for place in range(1, _TICKS + 1))]
    shown = [row for _, row in rows[:ROWS]]
    chart = strip("Members over time", shown, seconds=seconds, ticks=ticks if shown else ())
    return msgspec.structs.replace(chart, left_out=len(rows) - len(shown))


def _on_top(spans: list[StripSpan]) -> list[StripSpan]:
    """The spans of a row in the order in which they are drawn: failures cover the others."""
    return sorted(spans, key=lambda span: span.look in _FAILED)


def _span(
    read: FlowRead, number: int, started: datetime, now: datetime, href: Callable[[str], str]
) -> StripSpan:
    member: FlowMember = read.members[number]
    end = member.terminal_at or now
    began = read.flow.created_at
    took = length((end - started).total_seconds())
    return StripSpan(
        start=(started - began).total_seconds(),
        end=(end - began).total_seconds(),
        look=f"s-{member.public_state.value}",
        title=f"{read.graph.members[number].title}: {words(member.public_state)}, {took}",
        href=href(read.graph.members[number].key),
    )
