"""What a proof is: a name, the promises that it claims, and one function for each of its sizes."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from tests.proofs.arena import Arena
from tests.proofs.figures import Figure

Run: TypeAlias = Callable[[Arena], Sequence[Figure]]

TO_ITS_END: Final = "ran to its end"
"""The figure of a proof that an error ended."""


class Proof(msgspec.Struct, frozen=True):
    """`quick` takes seconds and notices planted faults; `full` has the figures of the promise."""

    name: str
    quick: Run
    full: Run
    claims: tuple[str, ...] = ()
    """The promises of which its figures speak; for each, `make mutants` plants a fault."""
    timed: bool = False
    """It has a figure in seconds: nothing else may keep the processors busy meanwhile."""
    sample: Run | None = None
    """What `make test` runs instead of `quick`, where that takes a minute."""


def verdict(proof: Proof, arena: Arena, *, quick: bool) -> list[Figure]:
    """What the proof found; an error that it did not expect is a figure that falls short.

    Whatever falls short is told with the seed and the command that shows it again.
    """
    again = f"python -m tests.proofs --only {proof.name} --seed {arena.seed}"
    again += " --quick" if quick else ""
    try:
        figures = list((proof.quick if quick else proof.full)(arena))
    except Exception as error:
        arena.say(traceback.format_exc())
        told = f"{type(error).__name__}: {error}"[:300]
        figures = [Figure(", ".join(proof.claims), TO_ITS_END, told, "yes", held=False)]
    for figure in figures:
        if not figure.held:
            arena.say(f"NO: {proof.name}: {figure.what}: {figure.reached}; again with {again}")
    return figures
