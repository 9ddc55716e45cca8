"""All orders of the steps of some operations, or as many as there is time for, in one situation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations

import msgspec

from tests.proofs.interleave.actor import is_raw
from tests.proofs.interleave.operations import Operation
from tests.proofs.interleave.saved import State, outcomes_overwritten, resumed_twice
from tests.proofs.interleave.scene import Scene
from tests.proofs.interleave.stage import Outcome, Play, Stage


class Found(msgspec.Struct):
    """What was counted over many plays."""

    cases: int = 0
    exhausted: int = 0
    """Cases of which every order was run."""
    plays: int = 0
    equal: int = 0
    next_turn: int = 0
    """Of the equal ones: after the next turn of a sweep that had passed over a row in use."""
    only_promises: int = 0
    """Of operations that are several transactions no order is asked."""
    overwritten: int = 0
    acked: int = 0
    successes_after: int = 0
    deadlocks: int = 0
    raw: int = 0
    resumed_twice: int = 0
    misplaced: int = 0
    """Orders after which queue and leases do not fit to the executions, or to their limits."""
    faults: list[str] = []

    def add(self, other: Found) -> None:
        for field in self.__struct_fields__:
            setattr(self, field, getattr(self, field) + getattr(other, field))


class Case(msgspec.Struct, frozen=True):
    """Operations that meet in a situation."""

    scene: Scene
    operations: tuple[Operation, ...]

    @property
    def name(self) -> str:
        return f"{self.scene.name}: {' + '.join(one.name for one in self.operations)}"

    @property
    def atomic(self) -> bool:
        return all(one.atomic for one in self.operations)


class Orders:
    """What the operations come to one after the other, in each order."""

    def __init__(self, stage: Stage, case: Case) -> None:
        self._stage, self._case = stage, case
        self.plain: dict[Outcome, Play] = {}
        self.swept: dict[Outcome, Play] = {}

    async def find(self) -> Play:
        """Play them; the one in which they come as they are named."""
        plays = [
            await self._stage.play(self._case.scene, self._case.operations, order=order)
            for order in permutations(range(len(self._case.operations)))
        ]
        self.plain = {play.outcome: play for play in reversed(plays)}
        return plays[0]

    async def find_swept(self) -> None:
        """The same after the next turns of sweeps that pass over rows in use; asked for rarely."""
        scene, operations = self._case.scene, self._case.operations
        for play in () if self.swept else self.plain.values():
            await self._stage.play(scene, operations, play.trace)
            self.swept.setdefault(await self._stage.swept(scene, operations, play), play)


async def explore(stage: Stage, case: Case, chance: random.Random, at_most: int) -> Found:
    """Play every order of the steps once, or `at_most` of them as chance has it.

    Those in which the operations come one after the other are not counted: the rest is held
    against them.
    """
    orders = Orders(stage, case)
    first = await orders.find()
    found = Found(cases=1)
    ahead = branches(first, 0)
    while ahead and found.plays < at_most:
        schedule = ahead.pop(chance.randrange(len(ahead)))
        play = await stage.play(case.scene, case.operations, schedule)
        ahead += branches(play, len(schedule))
        if play.switches >= len(case.operations):
            found.add(await judged(stage, case, play, orders))
    found.exhausted = int(not ahead)
    return found


def branches(play: Play, since: int) -> list[tuple[int, ...]]:
    """The schedules that leave this one after `since` steps, each at another step."""
    return [
        (*play.trace[:at], other)
        for at in range(since, len(play.trace))
        for other in play.options[at]
        if other != play.trace[at]
    ]


async def judged(stage: Stage, case: Case, play: Play, orders: Orders) -> Found:
    """Hold one play against what the operations come to one after the other."""
    found = Found(
        plays=1,
        overwritten=outcomes_overwritten(play.state),
        resumed_twice=resumed_twice(play.state),
        acked=play.acked,
        successes_after=play.successes_after,
        deadlocks=play.deadlocks,
        raw=sum(map(is_raw, play.answers)),
        misplaced=int(bool(play.broken)),
    )
    outcome, expected = play.outcome, orders.plain
    if not case.atomic:
        found.only_promises = 1
    elif outcome in expected:
        found.equal = 1
    elif any(one.passes_over for one in case.operations):
        outcome, expected = await settled(stage, case, play, orders), orders.swept
        found.equal = found.next_turn = int(outcome in expected)
    sound = found.equal or found.only_promises
    wrong = (
        found.overwritten,
        found.resumed_twice,
        found.successes_after,
        found.deadlocks,
        found.raw,
        found.misplaced,
    )
    if not sound or any(wrong):
        found.faults = [told_of(case, play, outcome, expected)]
    return found


async def settled(stage: Stage, case: Case, play: Play, orders: Orders) -> Outcome:
    """The outcome after the next turns of the sweeps: in an order that leads to a serial one."""
    scene, operations = case.scene, case.operations
    outcome = await stage.swept(scene, operations, play)
    await orders.find_swept()
    if outcome not in orders.swept:
        await stage.play(scene, operations, play.trace)
        backwards = range(len(operations) - 1, -1, -1)
        outcome = await stage.swept(scene, operations, play, backwards)
    return outcome


def told_of(
    case: Case,
    play: Play,
    outcome: Outcome,
    orders: dict[Outcome, Play],
) -> str:
    """Situation, operations and order of the steps, and how to see just that again."""
    schedule = "".join(map(str, play.trace))
    names = " ".join(f"'{one.name}'" for one in case.operations)
    lines = [
        f"{case.name}, steps {schedule}: again with"
        f" python -m tests.proofs.interleave '{case.scene.name}' {names} --steps {schedule}",
        f"  steps: {play.script}; deadlocks {play.deadlocks}",
        f"  answers: {' | '.join(outcome[0])}",
        *(f"  not true: {claim}" for claim in play.broken),
    ]
    for expected, one in orders.items():
        lines.append(
            f"  but in the order {''.join(map(str, one.trace))}: {' | '.join(expected[0])}"
        )
        lines += difference(expected[1], outcome[1])
    return "\n".join(lines)


def difference(expected: State, found: State) -> Sequence[str]:
    """The rows that differ."""
    return [f"    - {line}" for line in expected if line not in found] + [
        f"    + {line}" for line in found if line not in expected
    ]
