"""P2, and what it shows of G2, G8, G9, G10, G13, G14 and G21."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from uuid import UUID

import msgspec

from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.interleave.explore import Case, Found, explore
from tests.proofs.interleave.flow_operations import EVERYBODY, RENEW_EVERYBODY
from tests.proofs.interleave.lock_order import Batch, Crossed, meet
from tests.proofs.interleave.programme import (
    PARTS,
    WAKES,
    Meeting,
    both_at_work,
    meetings,
    one_each,
    pairs_of,
    triples,
)
from tests.proofs.interleave.scene import Scene
from tests.proofs.interleave.setting import set_scenes
from tests.proofs.interleave.stage import Stage
from tests.proofs.proof import Proof

STAGES = 2
"""Databases that are played in at the same time."""

IN_ORDER = {"exec_core": EVERYBODY, "lease": RENEW_EVERYBODY}
"""What locks every row of a table, in the order of ids."""

SHOWN = 3
"""Faults that are told in full."""


class Size(msgspec.Struct, frozen=True):
    """How much of it is played."""

    orders: int
    """Of the steps of a pair, at most; there may be fewer."""
    everywhere: bool
    """Every pair in every situation where both do something, or in one."""
    share: float = 1.0
    """Of the pairs that are played in one situation; the seed says which."""
    triples: int = 0
    """Orders of three at once."""
    wake_orders: int = 20
    """Of the steps of a pair in which a wake-up could be lost, at most."""
    whole: bool = True
    """Every pair of the parts that are small enough for it, or the share of them too."""


SAMPLE = Size(orders=2, everywhere=False, share=0.1, wake_orders=4, whole=False)
QUICK = Size(orders=2, everywhere=False, share=0.4)
FULL = Size(orders=9, everywhere=True, triples=8)


class Theatre:
    """Some stages with the same scenes, and what was seen on them."""

    def __init__(self, arena: Arena, size: Size) -> None:
        self._arena, self._size = arena, size
        self._chance = arena.chance("interleave: what is played")
        self.found, self.threes = Found(), Found()
        self.crossed = Crossed()
        self.pairs = 0

    async def run(self, dsns: Sequence[str]) -> None:
        stages = [await Stage.open(dsn, 3) for dsn in dsns]
        try:
            sets = await asyncio.gather(*(self._set(stage) for stage in stages))
            met = await asyncio.gather(
                *(
                    self._probe(stage, scenes, slice(n, None, len(stages)))
                    for n, (stage, scenes) in enumerate(zip(stages, sets, strict=True))
                )
            )
            ahead = self._chosen([meeting for some in met for meeting in some])
            batches = self._batches({key: rows for s in stages for key, rows in s.locks.items()})
            for play in (
                lambda stage, scenes: self._play(stage, scenes, ahead),
                lambda stage, scenes: self._cross(stage, scenes, batches),
            ):
                await asyncio.gather(*map(play, stages, sets))
        finally:
            for stage in stages:
                await stage.close()

    async def _set(self, stage: Stage) -> dict[str, Scene]:
        ways = (False, True) if self._size.everywhere else (self._arena.seed % 2 == 0,)
        scenes: dict[str, Scene] = {}
        for part in PARTS:
            scenes |= await set_scenes(
                stage, part.situations, descending=ways if part.both_ways else (False,)
            )
        return scenes

    async def _probe(self, stage: Stage, scenes: dict[str, Scene], mine: slice) -> list[Meeting]:
        found: list[Meeting] = []
        for name in list(scenes)[mine]:
            situation = name.removesuffix(" descending")
            [part] = [
                part for part in PARTS if situation in (each.name for each in part.situations)
            ]
            found += await meetings(stage, scenes[name], part.operations)
        return found

    def _chosen(self, met: list[Meeting]) -> list[Meeting]:
        met.sort(key=lambda one: (one.situation, [each.name for each in one.operations]))
        self.pairs = len(pairs_of(met))
        chosen = (
            both_at_work(met, self._chance)
            if self._size.everywhere
            else one_each(met, self._chance, self._size.share, whole=self._size.whole)
        )
        return [*chosen, *(triples() if self._size.triples else ())]

    def _batches(self, locks: dict[tuple[str, str, str], tuple[UUID, ...]]) -> list[Batch]:
        """The operations that lock several rows of a table, in every situation or in one."""
        by_name = {one.name: one for part in PARTS for one in part.operations}
        found: dict[tuple[str, str], list[Batch]] = {}
        for (situation, name, table), rows in sorted(locks.items()):
            if len(rows) > 1 and name != IN_ORDER[table].name:
                batch = Batch(situation, by_name[name], table, rows)
                found.setdefault((name, table), []).append(batch)
        if self._size.everywhere:
            return [batch for batches in found.values() for batch in batches]
        return [self._chance.choice(batches) for batches in found.values()]

    async def _cross(self, stage: Stage, scenes: dict[str, Scene], batches: list[Batch]) -> None:
        while batches:
            batch = batches.pop()
            before = len(self.crossed.faults)
            everybody = IN_ORDER[batch.table]
            await meet(stage, scenes[batch.situation], batch, everybody, self.crossed)
            for fault in self.crossed.faults[before:]:
                self._arena.say(f"{fault}\n  seed {self._arena.seed}")

    async def _play(self, stage: Stage, scenes: dict[str, Scene], ahead: list[Meeting]) -> None:
        while ahead:
            meeting = ahead.pop()
            scene = scenes[meeting.situation]
            if not all(scene.has(*one.needs) for one in meeting.operations):
                continue
            case = Case(scene, meeting.operations)
            chance = self._arena.chance(f"interleave: {case.name}")
            three = len(meeting.operations) == 3
            at_most = self._size.triples if three else self._size.orders
            if meeting.pair in WAKES:
                at_most = max(at_most, self._size.wake_orders)
            found = await explore(stage, case, chance, at_most)
            for fault in found.faults:
                self._arena.say(f"{fault}\n  seed {self._arena.seed}")
            (self.threes if three else self.found).add(found)


def figures(theatre: Theatre) -> list[Figure]:
    """What was reached, beside what was promised."""
    pairs, threes = theatre.found, theatre.threes
    both = Found()
    both.add(pairs)
    both.add(threes)
    faults = "".join(f"; {fault.splitlines()[0]}" for fault in both.faults[:SHOWN])
    told = [
        Figure(
            "G2, G8, G10, G13",
            "orders of two operations' steps that equal a serial order",
            f"{pairs.equal} of {pairs.plays - pairs.only_promises}"
            f" ({theatre.pairs} pairs, {pairs.cases} cases, {pairs.exhausted} of them in every"
            f" order; {pairs.next_turn} after a sweep's next turn){faults}",
            "all",
            held=0 < pairs.equal == pairs.plays - pairs.only_promises,
        ),
        Figure(
            "G2",
            "outcomes overwritten",
            f"{both.overwritten} in {both.plays} orders",
            "0",
            held=both.plays > 0 and not both.overwritten,
        ),
        Figure(
            "G9",
            "successes after an acked cancel",
            f"{both.successes_after} after {both.acked} acks",
            "0",
            held=both.acked > 0 and not both.successes_after,
        ),
        Figure(
            "G21",
            "deadlocks, raw SQLSTATEs surfaced",
            f"{both.deadlocks}, {both.raw} in {both.plays} orders",
            "0, 0",
            held=both.plays > 0 and not both.deadlocks and not both.raw,
        ),
        Figure(
            "G10",
            "executions that were resumed more often than suspended",
            f"{both.resumed_twice} in {both.plays} orders",
            "0",
            held=both.plays > 0 and not both.resumed_twice,
        ),
        Figure(
            "G2, G14",
            "orders after which an execution is not where it belongs, queued or leased, or a limit"
            " is passed, or holds somebody back for ever",
            f"{both.misplaced} in {both.plays} orders",
            "0",
            held=both.plays > 0 and not both.misplaced,
        ),
    ]
    crossed = theatre.crossed
    told.append(
        Figure(
            "G21",
            f"operations that lock several executions or leases: {len(crossed.operations)};"
            " those that deadlock with a batch in the order of ids",
            f"{len(crossed.faults)} of {crossed.meetings} meetings at a row that is in use,"
            f" {crossed.waited} of them a wait" + "".join(f"; {e}" for e in crossed.faults[:SHOWN]),
            "0",
            held=crossed.waited > 0 and not crossed.faults,
        )
    )
    if threes.plays:
        told.insert(
            1,
            Figure(
                "G2, G8",
                "orders of three operations' steps that equal a serial order",
                f"{threes.equal} of {threes.plays} ({threes.cases} cases)",
                "all",
                held=threes.equal == threes.plays,
            ),
        )
    return told


def proven(arena: Arena, size: Size) -> list[Figure]:
    theatre = Theatre(arena, size)
    with contextlib.ExitStack() as databases:
        dsns = [databases.enter_context(arena.database()) for _ in range(STAGES)]
        asyncio.run(theatre.run(dsns))
    return figures(theatre)


INTERLEAVE = Proof(
    "interleave",
    lambda arena: proven(arena, QUICK),
    lambda arena: proven(arena, FULL),
    claims=("G2", "G8", "G9", "G10", "G13", "G14", "G21"),
    sample=lambda arena: proven(arena, SAMPLE),
)
