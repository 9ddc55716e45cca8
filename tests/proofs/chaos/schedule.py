"""What strikes whom, and when, drawn from a seed: the same seed strikes in the same order."""

from __future__ import annotations

import random
from typing import Final, Literal, TypeAlias

import msgspec

from tests.proofs.chaos.proxy import Trap

WORKERS: Final = 2
CLIENT: Final = WORKERS
"""The party that submits; the others are workers."""

Kind: TypeAlias = Literal["kill", "freeze", "postgres", "cut", "trap"]

_OF_WORKERS: Final = ("lifecycle.claim", "lifecycle.complete", "lifecycle.renew", "commit")
_OF_CLIENT: Final = ("lifecycle.create_execution", "commit")


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How much work, how many faults."""

    booked: int
    plain: int
    fans: int
    chains: int
    kills: int
    freezes: int
    postgres_kills: int
    cuts: int
    ttl: float
    seconds: float
    """What a handler takes on average."""

    @property
    def executions(self) -> int:
        return self.booked + self.plain + FAN * self.fans + CHAIN * self.chains


FAN: Final = 12
"""Members of a fan: one, ten that wait for it, one that waits for those."""
CHAIN: Final = 4


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One blow."""

    kind: Kind
    party: int = -1
    trap: Trap | None = None
    at: float
    """At which share of all that is to be done."""
    seconds: float = 0.0


def faults(chance: random.Random, size: Size) -> list[Fault]:
    """Every blow of a run, in the order of their strikes, spread over the whole of it."""
    numbers: dict[Kind, int] = {
        "kill": size.kills,
        "freeze": size.freezes,
        "postgres": size.postgres_kills,
        "cut": size.cuts // 4,
        "trap": size.cuts - size.cuts // 4,
    }
    kinds: list[Kind] = [kind for kind, number in numbers.items() for _ in range(number)]
    chance.shuffle(kinds)
    slots = len(kinds) + 1
    return [
        _fault(chance, kind, (number + chance.uniform(0.2, 0.8)) / slots, size)
        for number, kind in enumerate(kinds)
    ]


def _fault(chance: random.Random, kind: Kind, at: float, size: Size) -> Fault:
    match kind:
        case "kill":
            return Fault(kind=kind, party=chance.randrange(WORKERS), at=at)
        case "freeze":
            return Fault(kind=kind, party=chance.randrange(WORKERS), at=at, seconds=2 * size.ttl)
        case "postgres":
            return Fault(kind=kind, at=at, seconds=chance.uniform(0, 0.5))
        case "cut":
            return Fault(kind=kind, party=chance.randrange(WORKERS + 1), at=at)
        case "trap":
            party = chance.randrange(WORKERS + 1)
            statement = chance.choice(_OF_CLIENT if party == CLIENT else _OF_WORKERS)
            when = chance.choice(("before", "after", "after"))
            return Fault(kind=kind, party=party, at=at, trap=Trap(statement, when))
