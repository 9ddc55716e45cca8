"""A seed is a schedule."""

from __future__ import annotations

import random
from collections import Counter

from flowfabric import Flow
from tests.proofs.chaos.load import Piece, pieces, weight
from tests.proofs.chaos.proofs import FULL, QUICK
from tests.proofs.chaos.schedule import faults


def shape(work: list[Piece]) -> list[object]:
    """What the pieces are made of, without the ids that are minted."""
    return [
        [(member.name, member.call.payload) for member in piece]
        if isinstance(piece, Flow)
        else [call.payload for call in piece]
        for piece in work
    ]


def test_the_same_seed_strikes_and_submits_the_same() -> None:
    first, again, other = (random.Random(seed) for seed in (1, 1, 2))

    assert (plan := faults(first, QUICK)) == faults(again, QUICK)
    assert plan != faults(other, QUICK)
    assert (work := shape(pieces(first, QUICK))) == shape(pieces(again, QUICK))
    assert work != shape(pieces(other, QUICK))


def test_there_are_as_many_blows_and_as_much_work_as_the_size_says() -> None:
    plan = faults(random.Random(1), FULL)
    kinds = Counter(fault.kind for fault in plan)

    assert (kinds["kill"], kinds["postgres"], kinds["freeze"]) == (20, 5, 5)
    assert [fault.at for fault in plan] == sorted(fault.at for fault in plan)
    assert all(0 < fault.at < 1 for fault in plan)
    assert {fault.seconds for fault in plan if fault.kind == "freeze"} == {2 * FULL.ttl}
    work = pieces(random.Random(1), FULL)
    assert sum(map(weight, work)) == FULL.executions == 20_000
