"""Which nodes of a large graph are drawn: those near what matters now."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from flowfabric.dashboard.graph.collapse import Collapsed
from flowfabric.dashboard.graph.model import Graph
from flowfabric.states import PublicState

AT_ONCE: Final = 300
"""So many nodes are drawn without asking."""
AT_MOST: Final = 5_000
"""So many are drawn when asked for all."""
_URGENT: Final = (
    (PublicState.FAILED, PublicState.EXPIRED),
    (PublicState.ACTIVE, PublicState.SUSPENDED, PublicState.RESUMABLE),
    (PublicState.WAITING, PublicState.DELAYED, PublicState.RATE_LIMITED),
)


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a graph that is drawn."""

    drawn: Collapsed
    total: int
    """Nodes that the whole has."""
    may_draw_all: bool = False


def choose(
    graph: Graph,
    whole: Collapsed,
    *,
    focus: Collection[str] = (),
    depth: int = 2,
    draw_all: bool = False,
) -> Choice:
    """The whole graph, or the nodes within `depth` steps of the focus; of a large one always.

    Of a large one without a focus these are the nodes with failed and with running members, then
    those that come next. Above 5,000 nodes only the stacks and the focus are drawn.
    """
    total = len(whole.nodes)
    if (total <= AT_ONCE and not focus) or (draw_all and total <= AT_MOST):
        return Choice(drawn=whole, total=total)
    beside: list[list[int]] = [[] for _ in whole.nodes]
    for arrow in whole.arrows:
        beside[arrow.upstream].append(arrow.downstream)
        beside[arrow.downstream].append(arrow.upstream)
    start = _focus(graph, whole, focus)
    if total > AT_MOST:
        kept = {index for index, node in enumerate(whole.nodes) if node.is_stack}
        kept.update(start if focus else ())
    else:
        kept = _near(start, beside, depth)
    kept = set(sorted(kept)[:AT_MOST])
    return Choice(
        drawn=_only(whole, kept, beside), total=total, may_draw_all=len(kept) < total <= AT_MOST
    )


def _focus(graph: Graph, whole: Collapsed, focus: Collection[str]) -> list[int]:
    """The indices to begin with, the most urgent first."""
    if focus:
        found = [
            index
            for index, node in enumerate(whole.nodes)
            if node.key in focus
            or any(graph.members[number].key in focus for number in node.numbers)
        ]
        if found:
            return found
    ranked: list[int] = []
    for states in _URGENT:
        ranked += [
            index
            for index, node in enumerate(whole.nodes)
            if any(graph.members[number].state in states for number in node.numbers)
        ]
        if ranked:
            return ranked
    return [0]


def _near(start: list[int], beside: list[list[int]], depth: int) -> set[int]:
    """At most 300 nodes within `depth` steps of the start, the nearest first."""
    kept = set(start[:AT_ONCE])
    edge = list(dict.fromkeys(start))[:AT_ONCE]
    for _ in range(depth):
        reached: list[int] = []
        for index in edge:
            for other in beside[index]:
                if len(kept) == AT_ONCE:
                    return kept
                if other not in kept:
                    kept.add(other)
                    reached.append(other)
        edge = reached
    return kept


def _only(whole: Collapsed, kept: Collection[int], beside: list[list[int]]) -> Collapsed:
    """The kept nodes with the arrows between them; each says how many neighbours are missing."""
    number = {index: place for place, index in enumerate(sorted(kept))}
    nodes = [
        msgspec.structs.replace(
            whole.nodes[index],
            hidden=len({other for other in beside[index] if other not in number}),
        )
        for index in number
    ]
    arrows = [
        msgspec.structs.replace(
            arrow, upstream=number[arrow.upstream], downstream=number[arrow.downstream]
        )
        for arrow in whole.arrows
        if arrow.upstream in number and arrow.downstream in number
    ]
    return Collapsed(nodes=nodes, arrows=arrows, opened=whole.opened)
