"""The chain of members that took the longest, and how much later each other one could end."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from statistics import median

import msgspec

from flowfabric.dashboard.graph.model import Graph


class CriticalPath(msgspec.Struct, frozen=True, kw_only=True):
    """The longest chain by time."""

    numbers: tuple[int, ...]
    seconds: float
    is_estimate: bool
    """Does the time of a member that has not started count?"""
    slack: tuple[float, ...]
    """Of each member: seconds by which it could take longer without a longer chain."""


def critical_path(
    graph: Graph, usual_times: Mapping[str, float] | None = None
) -> CriticalPath | None:
    """The longest chain, or None if no member has a time.

    A member that has not started is estimated by the usual time of its kind; by the median of its
    kind in this flow if that is not known, else by the median of all.
    """
    usual_times = usual_times or {}
    known = [member.took for member in graph.members if member.took is not None]
    if not known and not any(member.kind in usual_times for member in graph.members):
        return None
    usual = median(known or usual_times.values())
    by_kind: dict[str, list[float]] = {}
    for member in graph.members:
        if member.took is not None:
            by_kind.setdefault(member.kind, []).append(member.took)
    estimates = {
        member.kind: usual_times[member.kind]
        if member.kind in usual_times
        else median(by_kind.get(member.kind, [usual]))
        for member in graph.members
    }
    times = [
        member.took if member.took is not None else estimates[member.kind]
        for member in graph.members
    ]
    above: list[list[int]] = [[] for _ in times]
    below: list[list[int]] = [[] for _ in times]
    for link in graph.links:
        if not link.is_child:  # the time of a child is part of the time of its parent
            above[link.downstream].append(link.upstream)
            below[link.upstream].append(link.downstream)
    try:
        order = [*TopologicalSorter(dict(enumerate(above))).static_order()]
    except CycleError:
        return None
    until, since = times[:], times[:]
    for number in order:
        until[number] += max((until[each] for each in above[number]), default=0.0)
    for number in reversed(order):
        since[number] += max((since[each] for each in below[number]), default=0.0)
    longest = max(until)
    last = min(
        (number for number, seconds in enumerate(until) if seconds == longest),
        key=graph.places.__getitem__,
    )
    chain = [last]
    while above[chain[-1]]:
        chain.append(max(above[chain[-1]], key=lambda each: (until[each], -graph.places[each])))
    return CriticalPath(
        numbers=tuple(reversed(chain)),
        seconds=longest,
        is_estimate=any(
            graph.members[number].took is None or graph.members[number].is_estimate
            for number in chain
        ),
        slack=tuple(
            max(longest - (to + on - time), 0.0)
            for to, on, time in zip(until, since, times, strict=True)
        ),
    )
