"""Many equal members as one stack: `resize x 412`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from flowfabric.dashboard.graph.model import Graph, LinkState, PartialJoin
from flowfabric.states import PublicState

SMALLEST: Final = 6
"""Fewer equal members are drawn one by one."""


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn as one card: a member, or a stack of equal ones, by their numbers."""

    numbers: tuple[int, ...]
    key: str
    """The key of the member; of a stack the key of its first."""
    is_stack: bool = False
    place: int = 0
    hidden: int = 0
    """Neighbours that are not drawn."""


class GraphArrow(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn as one line, between two nodes by their index."""

    upstream: int
    downstream: int
    state: LinkState
    passes_data: bool = False
    is_child: bool = False


class Collapsed(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a drawing, and the arrows between them."""

    nodes: Sequence[GraphNode]
    arrows: Sequence[GraphArrow]
    opened: Sequence[GraphNode] = ()
    """The stacks that are drawn member by member."""

    def states(self, graph: Graph, node: GraphNode) -> Counter[PublicState]:
        """How many members of a node are in each state."""
        return Counter(graph.members[number].state for number in node.numbers)


def collapse(graph: Graph, *, opened: Collection[str] = (), grouped: bool = True) -> Collapsed:
    """The graph with stacks: members of equal kind, upstreams and downstreams, six or more.

    `opened` has keys of stacks that are not collapsed.
    """
    stacks = _stacks(graph) if grouped else []
    unfolded = [stack for stack in stacks if stack.key in opened]
    nodes = [stack for stack in stacks if stack.key not in opened]
    stacked = {number for stack in nodes for number in stack.numbers}
    nodes += [
        GraphNode(numbers=(number,), key=member.key, place=graph.places[number])
        for number, member in enumerate(graph.members)
        if number not in stacked
    ]
    nodes.sort(key=lambda node: node.place)
    index = {number: place for place, node in enumerate(nodes) for number in node.numbers}
    arrows: dict[tuple[int, int, bool], GraphArrow] = {}
    for link in graph.links:
        key = (index[link.upstream], index[link.downstream], link.is_child)
        seen = arrows.get(key)
        arrows[key] = GraphArrow(
            upstream=key[0],
            downstream=key[1],
            is_child=link.is_child,
            state=link.state if seen is None else _together(seen.state, link.state),
            passes_data=link.passes_data or (seen is not None and seen.passes_data),
        )
    return Collapsed(nodes=nodes, arrows=list(arrows.values()), opened=unfolded)


def join_of(graph: Graph, node: GraphNode) -> PartialJoin | None:
    """The join to mark a node with: of a member its own; a stack has none."""
    return None if node.is_stack else graph.members[node.numbers[0]].join


def _stacks(graph: Graph) -> list[GraphNode]:
    above: list[list[tuple[int, bool]]] = [[] for _ in graph.members]
    below: list[list[tuple[int, bool]]] = [[] for _ in graph.members]
    for link in graph.links:
        above[link.downstream].append((link.upstream, link.is_child))
        below[link.upstream].append((link.downstream, link.is_child))
    equal: dict[object, list[int]] = {}
    for number, member in enumerate(graph.members):
        signature = (member.kind, frozenset(above[number]), frozenset(below[number]))
        equal.setdefault(signature, []).append(number)
    return [
        GraphNode(
            numbers=tuple(numbers),
            key=min(graph.members[number].key for number in numbers),
            is_stack=True,
            place=min(graph.places[number] for number in numbers),
        )
        for numbers in equal.values()
        if len(numbers) >= SMALLEST
    ]


def _together(one: LinkState, other: LinkState) -> LinkState:
    """The state of several links that are drawn as one."""
    if LinkState.OPEN in (one, other):
        return LinkState.OPEN
    return one if one is other else LinkState.SATISFIED
