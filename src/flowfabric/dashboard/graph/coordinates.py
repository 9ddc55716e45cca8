"""Where each node stands along its rank: near its neighbours, and apart from the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

PASSES: Final = 6


def place_nodes(
    layers: Sequence[Sequence[int]],
    above: Sequence[list[int]],
    below: Sequence[list[int]],
    half: Sequence[float],
) -> list[float]:
    """The centre of each node; two of a layer are at least the sum of their halves apart.

    `half` is half of the room that a node needs along its layer. Every pass moves each layer as
    near to the means of its neighbours as the minimum distances allow.
    """
    centre = [0.0] * len(half)
    offsets: list[list[float]] = []
    for layer in layers:
        at, before = 0.0, 0.0
        room: list[float] = []
        for node in layer:
            at += before + half[node]
            before = half[node]
            room.append(at)
        offsets.append(room)
        middle = (at + before) / 2
        for node, place in zip(layer, room, strict=True):
            centre[node] = place - middle
    indices = range(len(layers))
    both = [[*up, *down] for up, down in zip(above, below, strict=True)]
    for turn in range(PASSES):
        last = turn >= PASSES - 2
        for index in indices if turn % 2 == 0 else indices[::-1]:
            beside = both if last else above if turn % 2 == 0 else below
            _settle(layers[index], offsets[index], beside, centre)
    return centre


def _settle(
    layer: Sequence[int],
    offsets: Sequence[float],
    neighbours: Sequence[list[int]],
    centre: list[float],
) -> None:
    """Move the nodes of a layer to the means of their neighbours, in order and apart.

    The squares of the distances to the means are least: adjacent nodes that would come too close
    are merged into a block that moves as one.
    """
    sums: list[float] = []
    sizes: list[int] = []
    means: list[float] = []
    for node, offset in zip(layer, offsets, strict=True):
        beside = neighbours[node]
        match len(beside):
            case 0:
                wish = centre[node] - offset
            case 1:
                wish = centre[beside[0]] - offset
            case 2:
                wish = (centre[beside[0]] + centre[beside[1]]) / 2 - offset
            case many:
                wish = sum([centre[each] for each in beside]) / many - offset
        total, size = wish, 1
        while means and means[-1] >= wish:
            means.pop()
            total += sums.pop()
            size += sizes.pop()
            wish = total / size
        means.append(wish)
        sums.append(total)
        sizes.append(size)
    place = 0
    for mean, size in zip(means, sizes, strict=True):
        for index in range(place, place + size):
            centre[layer[index]] = mean + offsets[index]
        place += size
