"""P1 `model_stateful`: the engine and a model of it answer alike, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.model.answers import Divergence
from tests.proofs.model.machine import run
from tests.proofs.model.real import Real
from tests.proofs.model.tally import PAIRS, Tally
from tests.proofs.proof import Proof

QUICK: Final = (200, 40)
FULL: Final = (600, 80)
"""Runs, and steps of each."""
NIGHTLY: Final = "5,000 x 80"

COVERAGE: Final = 0.95
QUICK_COVERAGE: Final = 0.90
REFUSED: Final = (0.4, 0.7)
"""About half of the calls are illegal."""


def quick(arena: Arena) -> Sequence[Figure]:
    return _prove(arena, *QUICK, coverage=QUICK_COVERAGE)


def full(arena: Arena) -> Sequence[Figure]:
    return _prove(arena, *FULL, coverage=COVERAGE)


def _prove(arena: Arena, runs: int, steps: int, *, coverage: float) -> Sequence[Figure]:
    """A divergence is raised, with the calls that led to it: the same seed leads there again."""
    tally = Tally()
    with arena.database() as dsn:
        real = Real(dsn)
        try:
            run(real, tally, runs=runs, steps=steps, from_seed=arena.seed)
        except Divergence as error:
            arena.say("\n".join([str(error), *getattr(error, "__notes__", ())]))
            raise
        finally:
            real.close()
    return _figures(tally, runs * steps, coverage)


def _figures(tally: Tally, wanted: int, coverage: float) -> Sequence[Figure]:
    low, high = REFUSED
    share = tally.refused / max(1, tally.calls)
    reached = len(PAIRS) - len(tally.missing)
    return [
        Figure(
            "G2, G3, G7-G9",
            "steps, one call at a time, engine and model alike, I1-I9 after each",
            f"{tally.steps} in {tally.runs} runs, 0 divergences",
            f">= {wanted}, 0 divergences (nightly {NIGHTLY})",
            held=tally.steps >= wanted,
        ),
        Figure(
            "",
            "(public state x operation) pairs called",
            f"{tally.coverage:.1%} ({reached} of {len(PAIRS)})",
            f">= {coverage:.0%}",
            held=tally.coverage >= coverage,
        ),
        Figure(
            "",
            "calls that had to be refused",
            f"{share:.0%} of {tally.calls}",
            f"{low:.0%} to {high:.0%}",
            held=low <= share <= high,
        ),
    ]


MODEL_STATEFUL: Final = Proof("model_stateful", quick, full)
