"""Graphs that tests are made of."""

from __future__ import annotations

import random
from collections.abc import Sequence

from flowfabric.dashboard.graph import Graph, GraphLink, GraphMember
from flowfabric.states import PublicState

Edges = list[tuple[int, int]]


def member(number: int, **fields: object) -> GraphMember:
    """A member with a key of its number."""
    known = {"kind": "step", "state": PublicState.WAITING, **fields}
    return GraphMember(key=f"7.00000000-0000-7000-8000-{number:012x}", **known)  # pyright: ignore


def graph(count: int, edges: Sequence[tuple[int, int]] = (), **fields: object) -> Graph:
    """Members with names by number, and links between them."""
    return Graph(
        members=[member(number, **{"name": f"step-{number}", **fields}) for number in range(count)],
        links=[
            GraphLink(upstream=upstream, downstream=downstream) for upstream, downstream in edges
        ],
    )


def random_edges(seed: int, count: int, edges: int, reach: int = 30) -> Edges:
    """Edges from earlier nodes to later ones, at most `reach` apart."""
    dice = random.Random(seed)
    found: set[tuple[int, int]] = set()
    possible = sum(min(number, reach) for number in range(count))
    while len(found) < min(edges, possible):
        downstream = dice.randrange(1, count)
        found.add((dice.randrange(max(0, downstream - reach), downstream), downstream))
    return sorted(found)


def shuffled(seed: int, count: int, edges: Edges) -> Edges:
    """The same graph with other numbers, so that no order of the input helps."""
    names = list(range(count))
    random.Random(seed).shuffle(names)
    return [(names[upstream], names[downstream]) for upstream, downstream in edges]


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onload='alert(1)",
    "</text></a></svg><svg onload=alert(1)>",
    "]]><!--",
    "&lt;b&gt; &amp; &#60;",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "\x00\x01\x1b[31m\ud800",
    "\u202egnp.exe\u2066",
    "漢字" * 40,
    "a" * 5_000,
    "\n\t \n",
]
