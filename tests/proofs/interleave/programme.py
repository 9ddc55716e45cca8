"""Which operations meet in which situations: every pair, wherever one of the two does something."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations, combinations_with_replacement

import msgspec

from tests.proofs.interleave.families import FAMILY_SITUATIONS, FLOW_SITUATIONS
from tests.proofs.interleave.flow_operations import FAMILIES, FLOWS
from tests.proofs.interleave.limited import LIMIT_SITUATIONS, LIMITS
from tests.proofs.interleave.operations import EXECUTIONS, Operation
from tests.proofs.interleave.scene import Scene
from tests.proofs.interleave.scheduled import SCHEDULE_SITUATIONS, SCHEDULES
from tests.proofs.interleave.situations import SITUATIONS, Situation
from tests.proofs.interleave.spends import SPEND_SITUATIONS, SPENDS
from tests.proofs.interleave.stage import Stage
from tests.proofs.interleave.waits import WAIT_SITUATIONS, WAITS

HOTTEST = (
    "claim",
    "complete x",
    "retry x",
    "cancel_execution x",
    "revoke_lease x",
    "expire_leases",
)
HOT_SITUATIONS = ("waiting", "held", "lapsed", "interrupted")

PARKS = ("suspend x by name", "suspend x at door", "suspend x for children", "wait_children x")
SIGNALS = ("send_signal x", "deliver_signal x")
WAKES = frozenset(
    frozenset(pair)
    for pair in (
        *((park, signal) for park in PARKS[:2] for signal in SIGNALS),
        ("suspend x at door as a handler", "deliver_signal x"),
        ("suspend x at door as a handler", "close_waitpoint x"),
        ("deliver_signal x", "close_waitpoint x"),
        *(("delay_with_entries x", signal) for signal in SIGNALS),
        *(("expire_suspensions", signal) for signal in SIGNALS),
        *(("cancel_execution x", signal) for signal in SIGNALS),
        *(("look_at_waits x", signal) for signal in SIGNALS),
        *((park, end) for park in PARKS[2:] for end in ("complete kid a", "dispatch")),
        ("look_at_waits x", "dispatch"),
        *((frees, "unblock_keys") for frees in ("claim", "expire_leases")),
        ("claim", "complete x and unblock"),
        ("record_spend x of pages", "reset_budgets"),
    )
)
"""Pairs that could lose or double a wake-up or a count: played in any case, in many orders."""


class Part(msgspec.Struct, frozen=True):
    """Operations of one kind and the situations in which they meet."""

    operations: tuple[Operation, ...]
    situations: tuple[Situation, ...]
    both_ways: bool = False
    """Are there several executions, whose ids may ascend or descend?"""
    whole: bool = False
    """Is every pair played where otherwise only a share of them is?"""
    everywhere: bool = False
    """And in every situation in which both do something, not only in one?"""


PARTS = (
    Part(EXECUTIONS, SITUATIONS),
    Part(FLOWS, FLOW_SITUATIONS, both_ways=True),
    Part(FAMILIES, FAMILY_SITUATIONS, both_ways=True),
    Part(WAITS, WAIT_SITUATIONS, whole=True),
    Part(SCHEDULES, SCHEDULE_SITUATIONS, whole=True),
    Part(SPENDS, SPEND_SITUATIONS, whole=True),
    Part(LIMITS, LIMIT_SITUATIONS, whole=True, everywhere=True),
)


class Meeting(msgspec.Struct, frozen=True):
    """Operations in a situation, and how many of them do something there on their own."""

    situation: str
    operations: tuple[Operation, ...]
    effective: int = 0

    @property
    def pair(self) -> frozenset[str]:
        return frozenset(one.name for one in self.operations)


async def meetings(stage: Stage, scene: Scene, operations: Sequence[Operation]) -> list[Meeting]:
    """The pairs of which at least one does something in this scene."""
    callable_here = [one for one in operations if scene.has(*one.needs)]
    before = (await stage.play(scene, ())).state
    effective = {
        one.name: (await stage.play(scene, (one,))).state != before for one in callable_here
    }
    return [
        Meeting(scene.name, pair, sum(effective[one.name] for one in pair))
        for pair in combinations_with_replacement(callable_here, 2)
        if any(effective[one.name] for one in pair)
    ]


def one_each(
    found: Sequence[Meeting], chance: random.Random, share: float = 1.0, *, whole: bool = True
) -> list[Meeting]:
    """That share of the pairs, once each as a rule; with `whole` all pairs of parts that say so.

    Where both do something, if there is such a situation.
    """
    in_whole = {one.name for part in PARTS if whole and part.whole for one in part.situations}
    everywhere = {one.name for part in PARTS if part.everywhere for one in part.situations}
    pairs = list(pairs_of(found).values())
    played = chance.sample(pairs, round(share * len(pairs)))
    played += [
        here
        for here in pairs
        if here not in played
        and (here[0].pair in WAKES or any(one.situation in in_whole for one in here))
    ]
    chosen: list[Meeting] = []
    for here in played:
        most = max(meeting.effective for meeting in here)
        best = [one for one in here if one.effective == most]
        chosen += [one for one in best if one.situation in everywhere] or [chance.choice(best)]
    return chosen


def both_at_work(found: Sequence[Meeting], chance: random.Random) -> list[Meeting]:
    """Each pair wherever both do something, and twice where only one of the two does."""
    chosen: list[Meeting] = []
    for here in pairs_of(found).values():
        chosen += [one for one in here if one.effective == len(one.operations)]
        rest = [one for one in here if one.effective < len(one.operations)]
        chosen += chance.sample(rest, min(2, len(rest)))
    return chosen


def pairs_of(found: Sequence[Meeting]) -> dict[frozenset[str], list[Meeting]]:
    """The meetings of each pair."""
    pairs: dict[frozenset[str], list[Meeting]] = {}
    for meeting in found:
        pairs.setdefault(meeting.pair, []).append(meeting)
    return pairs


def triples() -> Iterator[Meeting]:
    """Three of the hottest at once, and two of them with the creation of what they meet over."""
    hot = [one for one in EXECUTIONS if one.name in HOTTEST]
    for name in HOT_SITUATIONS:
        for three in combinations(hot, 3):
            yield Meeting(name, three)
    [create] = [one for one in EXECUTIONS if one.name == "create"]
    for two in combinations([one for one in hot if one.needs == ("x",)], 2):
        yield Meeting("empty", (create, *two))
