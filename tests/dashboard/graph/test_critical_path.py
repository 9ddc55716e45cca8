"""The longest chain by time, and the slack of the others."""

from __future__ import annotations

import pytest

from flowfabric.dashboard.graph import Graph, GraphLink, critical_path
from tests.dashboard.graph.graphs import graph, member


def timed(times: list[float | None], edges: list[tuple[int, int]], **fields: object) -> Graph:
    return Graph(
        members=[member(number, took=took, **fields) for number, took in enumerate(times)],
        links=[
            GraphLink(upstream=upstream, downstream=downstream) for upstream, downstream in edges
        ],
    )


def test_the_longest_chain_is_critical_and_others_have_slack() -> None:
    found = critical_path(timed([1, 5, 2, 1, 9], [(0, 1), (0, 2), (1, 3), (2, 3)]))

    assert found is not None
    assert found.numbers == (4,)
    assert found.seconds == 9
    assert found.slack == pytest.approx((2, 2, 5, 2, 0))
    assert not found.is_estimate


def test_a_member_without_a_time_is_estimated_by_its_kind() -> None:
    found = critical_path(timed([1, 3, None], [(0, 1), (1, 2)]))

    assert found is not None
    assert (found.numbers, found.seconds, found.is_estimate) == ((0, 1, 2), 6, True)


def test_a_usual_time_of_the_kind_counts_before_the_times_of_this_flow() -> None:
    whole = timed([1, 3, None], [(0, 1), (1, 2)])
    found = critical_path(whole, {"step": 10.0, "other": 99.0})
    assert found is not None
    assert (found.numbers, found.seconds, found.is_estimate) == ((0, 1, 2), 14, True)

    found = critical_path(timed([None, None], [(0, 1)]), {"step": 10.0})
    assert found is not None
    assert (found.seconds, found.is_estimate) == (20, True)
    assert critical_path(timed([None], []), {"other": 99.0}) is None


def test_without_any_time_there_is_none() -> None:
    assert critical_path(graph(3, [(0, 1)])) is None


def test_the_time_of_a_child_belongs_to_its_parent() -> None:
    whole = Graph(
        members=[member(0, took=10.0), member(1, took=8.0)],
        links=[GraphLink(upstream=0, downstream=1, is_child=True)],
    )

    found = critical_path(whole)

    assert found is not None
    assert (found.numbers, found.seconds) == ((0,), 10)
