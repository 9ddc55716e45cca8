"""The order of the nodes within each rank, so that few edges cross."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

SWEEPS: Final = 8
_COUNTED: Final = 1_000
"""Up to so many segments the crossings are counted, and the best order of all sweeps is kept."""


def order_ranks(
    layers: list[list[int]], above: Sequence[list[int]], below: Sequence[list[int]]
) -> None:
    """Sort every layer in place by the mean position of the neighbours, down and up in turns.

    Nodes with equal means keep their order, so equal input has equal output.
    """
    position = [0] * len(above)
    for layer in layers:
        for place, node in enumerate(layer):
            position[node] = place
    is_counted = sum(map(len, below)) <= _COUNTED
    best, fewest = [layer[:] for layer in layers], crossings(layers, below) if is_counted else 0
    if is_counted and not fewest:
        return
    unchanged = 0
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        changed = _sweep(layers if down else layers[::-1], above if down else below, position)
        unchanged = 0 if changed else unchanged + 1
        if unchanged == 2:
            break
        if is_counted and (found := crossings(layers, below)) < fewest:
            best, fewest = [layer[:] for layer in layers], found
    if is_counted:
        layers[:] = best


def _sweep(
    layers: Sequence[list[int]], neighbours: Sequence[list[int]], position: list[int]
) -> bool:
    """Sort the layers one after the other; did any change?"""
    changed = False
    for layer in layers:
        means: list[float] = []
        for node in layer:
            beside = neighbours[node]
            match len(beside):
                case 0:
                    means.append(position[node])
                case 1:
                    means.append(position[beside[0]])
                case 2:
                    means.append((position[beside[0]] + position[beside[1]]) / 2)
                case many:
                    means.append(sum([position[each] for each in beside]) / many)
        if all(one <= other for one, other in pairwise(means)):
            continue
        changed = True
        layer[:] = [layer[place] for place in sorted(range(len(means)), key=means.__getitem__)]
        for place, node in enumerate(layer):
            position[node] = place
    return changed


def crossings(layers: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> int:
    """How many pairs of segments cross."""
    total = 0
    for upper, lower in pairwise(layers):
        place = {node: index for index, node in enumerate(lower)}
        seen: list[int] = []
        for node in upper:
            ends = sorted(place[each] for each in below[node])
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total
