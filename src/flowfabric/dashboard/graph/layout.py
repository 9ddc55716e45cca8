"""Lays a graph out in ranks: nodes in columns (or rows), edges between them as smooth lines."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from flowfabric.dashboard.graph.coordinates import place_nodes
from flowfabric.dashboard.graph.ordering import order_ranks
from flowfabric.dashboard.graph.ranks import Edge, assign_ranks, components

WIDTH: Final = 212
HEIGHT: Final = 48
LONGEST: Final = 12
"""An edge over more ranks is one line; others pass every rank between its nodes."""
_APART: Final = 18
_LANE: Final = 10
_BETWEEN: Final = {"lr": 72, "tb": 56}
_MARGIN: Final = 24
_MIN_COLUMNS: Final = 4


_Line = tuple[str, tuple[int, int]]


class GraphDirection(StrEnum):
    """Where edges lead: from left to right, or from top to bottom."""

    LR = "lr"
    TB = "tb"


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The corner of every node, and the line of every edge, in whole units."""

    x: list[int]
    y: list[int]
    ranks: list[int]
    lines: list[str]
    """Of each edge, as the `d` of an SVG path."""
    middles: list[tuple[int, int]]
    """Of each edge, the middle of its last bend."""
    width: int
    height: int


class _Plane:
    """Positions by rank and place: `along` grows with the rank, `across` within one."""

    def __init__(self, count: int, direction: GraphDirection) -> None:
        self.is_lr = direction is GraphDirection.LR
        self.depth, self.breadth = (WIDTH, HEIGHT) if self.is_lr else (HEIGHT, WIDTH)
        self.step = self.depth + _BETWEEN[direction]
        self.along, self.across = [0] * count, [0] * count
        self.ranks = [0] * count


def lay_out(
    count: int,
    edges: Sequence[Edge],
    *,
    places: Sequence[int] | None = None,
    direction: GraphDirection = GraphDirection.LR,
) -> Layout:
    """Place `count` nodes and draw the edges between them; equal input has equal output.

    Nodes that edges connect are laid out together, the largest such group first. Nodes without
    edges stand in a grid below. `places` orders what nothing else orders.
    """
    order = range(count) if places is None else places
    plane = _Plane(count, direction)
    lines = [""] * len(edges)
    middles = [(0, 0)] * len(edges)
    group_of = [-1] * count
    groups = components(count, edges, order)
    for number, group in enumerate(groups):
        for node in group:
            group_of[node] = number
    edges_of: list[list[int]] = [[] for _ in groups]
    for number, (upstream, _) in enumerate(edges):
        edges_of[group_of[upstream]].append(number)
    top = _MARGIN
    for group, numbers in zip(groups, edges_of, strict=True):
        top, drawn = _place_group(plane, group, [edges[each] for each in numbers], top)
        for number, (line, middle) in zip(numbers, drawn, strict=True):
            lines[number], middles[number] = line, middle
    _place_lone(plane, [node for node in range(count) if group_of[node] < 0], order, top)
    x, y = (plane.along, plane.across) if plane.is_lr else (plane.across, plane.along)
    return Layout(
        x=x,
        y=y,
        ranks=plane.ranks,
        lines=lines,
        middles=middles,
        width=max(x, default=0) + WIDTH + _MARGIN,
        height=max(y, default=0) + HEIGHT + _MARGIN,
    )


def _place_group(
    plane: _Plane, group: Sequence[int], edges: Sequence[Edge], top: int
) -> tuple[int, list[_Line]]:
    """Place the nodes of one group from `top` on; where the next group begins, and the lines."""
    local = {node: index for index, node in enumerate(group)}
    pairs = [(local[upstream], local[downstream]) for upstream, downstream in edges]
    count = len(group)
    ranks = assign_ranks(count, pairs, range(count))
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    layers: list[list[int]] = [[] for _ in range(max(ranks) + 1)]
    for node, rank in enumerate(ranks):
        layers[rank].append(node)
    passed: list[list[int]] = [[] for _ in pairs]
    for number in sorted(range(len(pairs)), key=pairs.__getitem__):  # not in the order given
        (upstream, downstream), between = pairs[number], passed[number]
        first, last = ranks[upstream], ranks[downstream]
        if 0 < last - first <= LONGEST:
            before = upstream
            for rank in range(first + 1, last):
                dummy = len(above)
                above.append([before])
                below.append([])
                below[before].append(dummy)
                layers[rank].append(dummy)
                between.append(dummy)
                before = dummy
            below[before].append(downstream)
            above[downstream].append(before)
    order_ranks(layers, above, below)
    breadth = plane.breadth / 2
    half = [breadth + _APART / 2] * count + [_LANE / 2 + 2] * (len(above) - count)
    centre = place_nodes(layers, above, below, half)
    lowest = min(
        centre[layer[0]] - (breadth if layer[0] < count else 0) for layer in layers if layer
    )
    shift = top - lowest
    at = [round(each + shift) for each in centre]
    corner = round(breadth)
    for node, index in local.items():
        plane.ranks[node] = ranks[index]
        plane.along[node] = _MARGIN + ranks[index] * plane.step
        plane.across[node] = at[index] - corner
    lines: list[_Line] = []
    for (upstream, downstream), between in zip(pairs, passed, strict=True):
        stops = [(ranks[upstream], at[upstream])]
        stops += [(ranks[upstream] + 1 + nth, at[each]) for nth, each in enumerate(between)]
        stops.append((ranks[downstream], at[downstream]))
        lines.append(_line(plane, stops))
    highest = max(at[layer[-1]] + (corner if layer[-1] < count else 0) for layer in layers if layer)
    return highest + 2 * _APART, lines


def _line(plane: _Plane, stops: Sequence[tuple[int, int]]) -> _Line:
    """A line from the end of the first node through lanes of the ranks between to the last."""
    rank, across = stops[0]
    middle = (0, 0)
    along = _MARGIN + rank * plane.step + plane.depth
    parts = [f"M{along} {across}" if plane.is_lr else f"M{across} {along}"]
    for nth, (rank, aside) in enumerate(stops[1:], 2):
        until = _MARGIN + rank * plane.step
        half, whole, over = (until - along) // 2, until - along, aside - across
        if plane.is_lr:
            parts.append(f"c{half} 0 {half} {over} {whole} {over}" if over else f"h{whole}")
        else:
            parts.append(f"c0 {half} {over} {half} {over} {whole}" if over else f"v{whole}")
        middle = ((along + until) // 2, (across + aside) // 2)
        if nth < len(stops):
            parts.append(f"h{plane.depth}" if plane.is_lr else f"v{plane.depth}")
        along, across = until + plane.depth, aside
    return "".join(parts), middle if plane.is_lr else (middle[1], middle[0])


def _place_lone(plane: _Plane, lone: list[int], order: Sequence[int], top: int) -> None:
    """The nodes without edges, in a grid as wide as the rest."""
    lone.sort(key=order.__getitem__)
    columns = max(max(plane.ranks, default=0) + 1, _MIN_COLUMNS)
    for place, node in enumerate(lone):
        rank, row = place % columns, place // columns
        plane.ranks[node] = rank
        plane.along[node] = _MARGIN + rank * plane.step
        plane.across[node] = top + row * (plane.breadth + _APART)
