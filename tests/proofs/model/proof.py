"""P1 `model_stateful`: the engine and a model of it answer alike, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.model.machine import run
from tests.proofs.model.real import Real
from tests.proofs.model.tally import PAIRS, Tally
from tests.proofs.proof import Proof

CLAIMS: Final = ("G2", "G3", "G7", "G8", "G9", "G10")
SAMPLE: Final = (40, 40)
QUICK: Final = (110, 40)
FULL: Final = (610, 80)
"""Runs, and steps of each."""
WHOLE: Final = 0.99
"""So many of the steps at least: a run ends early where it has drawn all that it may draw."""
NIGHTLY: Final = "5,000 x 80"

COVERAGE: Final = 0.95
QUICK_COVERAGE: Final = 0.8
SAMPLE_COVERAGE: Final = 0.5
REFUSED: Final = (0.4, 0.7)
"""About half of the calls are illegal."""


def sample(arena: Arena) -> Sequence[Figure]:
    return _prove(arena, *SAMPLE, coverage=SAMPLE_COVERAGE)


def quick(arena: Arena) -> Sequence[Figure]:
    return _prove(arena, *QUICK, coverage=QUICK_COVERAGE)


def full(arena: Arena) -> Sequence[Figure]:
    return _prove(arena, *FULL, coverage=COVERAGE)


def _prove(arena: Arena, runs: int, steps: int, *, coverage: float) -> Sequence[Figure]:
    """It ends at the first divergence, and tells the calls that led there."""
    tally, divergence = Tally(), ""
    with arena.database() as dsn:
        real = Real(dsn)
        try:
            run(real, tally, runs=runs, steps=steps, from_seed=arena.seed)
        except Exception as error:  # a divergence, or a call that ended as none should
            found = _innermost(error)
            divergence = f"{type(found).__name__}: {found}"
            arena.say("\n".join([divergence, *getattr(found, "__notes__", ())]))
        finally:
            real.close()
    step = _alike(tally, int(runs * steps * WHOLE), divergence)
    return [step] if divergence else [step, *_figures(tally, coverage)]


def _innermost(error: Exception) -> Exception:
    """What the run raised: hypothesis groups it if the repetition of the run ended early."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _alike(tally: Tally, wanted: int, divergence: str) -> Figure:
    return Figure(
        ", ".join(CLAIMS),
        "steps, one call at a time, engine and model alike, I1-I9 after each",
        f"{tally.steps} in {tally.runs} runs, {divergence[:300] or '0 divergences'}",
        f">= {wanted:,}, 0 divergences (nightly {NIGHTLY})",
        held=tally.steps >= wanted and not divergence,
    )


def _figures(tally: Tally, coverage: float) -> Sequence[Figure]:
    low, high = REFUSED
    share = tally.refused / max(1, tally.calls)
    reached = len(PAIRS) - len(tally.missing)
    return [
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


MODEL_STATEFUL: Final = Proof("model_stateful", quick, full, claims=CLAIMS, sample=sample)
