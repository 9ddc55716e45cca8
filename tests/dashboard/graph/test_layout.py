"""Nodes stand apart, edges lead on, and equal graphs look equal."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from flowfabric.dashboard.graph.layout import HEIGHT, WIDTH, GraphDirection, Layout, lay_out
from flowfabric.dashboard.graph.ordering import crossings, order_ranks
from flowfabric.dashboard.graph.ranks import assign_ranks
from tests.dashboard.graph.graphs import Edges, random_edges, shuffled

CASES: list[tuple[int, Edges]] = [
    (count, shuffled(seed, count, random_edges(seed, count, edges, reach)))
    for seed, (count, edges, reach) in enumerate(
        [
            (1, 0, 1),
            (2, 1, 1),
            (9, 8, 1),
            (40, 30, 5),
            (60, 200, 20),
            (200, 150, 200),
            (25, 300, 25),
        ]
    )
]


def overlapping(layout: Layout) -> list[tuple[int, int]]:
    boxes = sorted(zip(layout.x, layout.y, range(len(layout.x)), strict=True))
    return [
        (one, other)
        for place, (x, y, one) in enumerate(boxes)
        for x2, y2, other in boxes[place + 1 :]
        if x2 < x + WIDTH and y2 < y + HEIGHT and y < y2 + HEIGHT
    ]


@pytest.mark.parametrize("direction", GraphDirection)
def test_no_two_nodes_overlap_and_all_are_inside(direction: GraphDirection) -> None:
    for count, edges in CASES:
        layout = lay_out(count, edges, direction=direction)
        assert overlapping(layout) == []
        assert all(0 <= x <= layout.width - WIDTH for x in layout.x)
        assert all(0 <= y <= layout.height - HEIGHT for y in layout.y)


@pytest.mark.parametrize("direction", GraphDirection)
def test_every_edge_leads_to_a_later_rank(direction: GraphDirection) -> None:
    for count, edges in CASES:
        layout = lay_out(count, edges, direction=direction)
        along = layout.x if direction is GraphDirection.LR else layout.y
        assert all(layout.ranks[up] < layout.ranks[down] for up, down in edges)
        assert all(along[up] < along[down] for up, down in edges)


def test_a_line_begins_at_its_upstream_and_ends_at_its_downstream() -> None:
    for count, edges in CASES:
        layout = lay_out(count, edges)
        for (up, down), line in zip(edges, layout.lines, strict=True):
            x, y = end_of(line)
            assert line.startswith(f"M{layout.x[up] + WIDTH} {layout.y[up] + HEIGHT // 2}")
            assert (x, y) == (layout.x[down], layout.y[down] + HEIGHT // 2)


def steps(line: str) -> Iterator[tuple[str, int, int, int]]:
    """The commands of a path of `M`, `c` and `h`: where each begins, and how far it goes along."""
    x = y = 0
    for command, numbers in re.findall(r"([Mch])([-\d ]+)", line):
        given = [int(number) for number in numbers.split()]
        match command:
            case "M":
                x, y = given
            case "c":
                yield command, x, y, given[4]
                x, y = x + given[4], y + given[5]
            case _:
                yield command, x, y, given[0]
                x += given[0]
    yield "end", x, y, 0


def end_of(line: str) -> tuple[int, int]:
    [*_, (_, x, y, _)] = steps(line)
    return x, y


def test_no_line_passes_through_a_card() -> None:
    count, edges = CASES[4]
    layout = lay_out(count, edges)
    lanes = [
        (x, y)
        for line in layout.lines
        for command, x, y, wide in steps(line)
        if command == "h" and wide == WIDTH
    ]
    assert lanes
    assert not [
        (x, y)
        for x, y in lanes
        for node in range(count)
        if layout.x[node] == x and layout.y[node] <= y <= layout.y[node] + HEIGHT
    ]


def test_equal_graphs_look_equal_whatever_the_order_of_their_edges() -> None:
    for count, edges in CASES:
        layout = lay_out(count, edges)
        assert lay_out(count, edges) == layout
        turned = lay_out(count, edges[::-1])
        assert (turned.x, turned.y) == (layout.x, layout.y)


def test_a_chain_is_a_straight_line() -> None:
    layout = lay_out(5, [(0, 1), (1, 2), (2, 3), (3, 4)])

    assert len(set(layout.y)) == 1
    assert all("c" not in line for line in layout.lines)


def test_a_source_stands_directly_before_its_first_downstream() -> None:
    assert assign_ranks(5, [(0, 1), (1, 2), (2, 3), (4, 3)], range(5)) == [0, 1, 2, 3, 2]


def test_groups_without_edges_between_them_stand_apart_the_largest_first() -> None:
    layout = lay_out(5, [(0, 1), (2, 3), (3, 4)])

    assert max(layout.y[2:]) + HEIGHT < min(layout.y[:2])


def test_nodes_without_edges_are_a_grid() -> None:
    layout = lay_out(9, [])

    assert len(set(layout.x)) == 4
    assert layout.y == sorted(layout.y)


def test_a_circle_is_laid_out_all_the_same() -> None:
    layout = lay_out(4, [(0, 1), (1, 2), (2, 0), (2, 3)])

    assert overlapping(layout) == []
    assert layout.ranks == [0, 1, 2, 3]


def test_an_edge_over_many_ranks_is_one_line() -> None:
    chain = [(node, node + 1) for node in range(20)]
    layout = lay_out(21, [*chain, (0, 20), (0, 5)])

    assert layout.lines[20].count("h") <= 1
    assert layout.lines[21].count(f"h{WIDTH}") == 4


def test_sweeps_take_crossings_away_that_need_not_be() -> None:
    below: list[list[int]] = [[5], [4], [3], [], [], []]
    above: list[list[int]] = [[], [], [], [2], [1], [0]]
    layers = [[0, 1, 2], [3, 4, 5]]
    assert crossings(layers, below) == 3

    order_ranks(layers, above, below)

    assert crossings(layers, below) == 0


@pytest.mark.timing
def test_a_large_graph_is_laid_out_quickly() -> None:
    for count, bound in ((1_000, 0.06), (3_000, 0.25)):
        edges = random_edges(1, count, 2 * count, reach=count // 20)
        taken: list[float] = []
        for _ in range(3):
            began = time.process_time()
            lay_out(count, edges)
            taken.append(time.process_time() - began)
        assert min(taken) < 3 * bound
