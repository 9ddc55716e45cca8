"""The rank of each node: how many steps it stands from the beginning."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop

Edge = tuple[int, int]


def assign_ranks(count: int, edges: Sequence[Edge], places: Sequence[int]) -> list[int]:
    """The longest path that leads to each node; a node that none leads to stands before its first.

    Where the edges have a circle, the edges that lead back to a node already ranked do not count.
    """
    below: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for upstream, downstream in edges:
        below[upstream].append(downstream)
        waits[downstream] += 1
    sources = [node for node in range(count) if not waits[node]]
    ranks, done = [0] * count, [False] * count
    ready = sources[:]
    ranked = 0
    stuck: list[tuple[int, int]] | None = None
    while ranked < count:
        if not ready:
            if stuck is None:
                stuck = [(places[node], node) for node in range(count) if not done[node]]
                heapify(stuck)
            ready.append(heappop(stuck)[1])
        node = ready.pop()
        if done[node]:
            continue
        done[node] = True
        ranked += 1
        after = ranks[node] + 1
        for each in below[node]:
            if not done[each]:
                ranks[each] = max(ranks[each], after)
                waits[each] -= 1
                if not waits[each]:
                    ready.append(each)
    for node in sources:
        if below[node]:
            ranks[node] = min(ranks[each] for each in below[node]) - 1
    return ranks


def components(count: int, edges: Sequence[Edge], places: Sequence[int]) -> list[list[int]]:
    """The nodes that edges connect, the largest group first; nodes without edges are left out."""
    beside: list[list[int]] = [[] for _ in range(count)]
    for upstream, downstream in edges:
        beside[upstream].append(downstream)
        beside[downstream].append(upstream)
    seen = [not each for each in beside]
    found: list[list[int]] = []
    for node in sorted(range(count), key=places.__getitem__):
        if seen[node]:
            continue
        seen[node] = True
        group = [node]
        for each in group:
            for other in beside[each]:
                if not seen[other]:
                    seen[other] = True
                    group.append(other)
        group.sort(key=places.__getitem__)
        found.append(group)
    found.sort(key=len, reverse=True)  # stable: equally large ones stay in the order of names
    return found
