"""Every proof holds at the size that fits into a test run; `make prove` runs them in full."""

from __future__ import annotations

import os

import pytest

from flowfabric.testing import TestServer
from tests.proofs.arena import Arena
from tests.proofs.catalogue import PROOFS
from tests.proofs.proof import Proof

SEED = int(os.environ.get("FF_PROOF_SEED", "1"))
TIMED = {"chaos_crash", "restart", "skew", "blocked_loop", "drain"}
"""Those with a figure in seconds."""


EACH = [
    pytest.param(proof, id=proof.name, marks=[pytest.mark.timing] if proof.name in TIMED else [])
    for proof in PROOFS
]


@pytest.mark.parametrize("proof", EACH)
def test_what_is_promised_holds(proof: Proof, ff_server: TestServer) -> None:
    figures = proof.quick(Arena(ff_server, SEED, quiet=True))

    short = [figure for figure in figures if not figure.held]
    assert figures
    assert not short, f"again with FF_PROOF_SEED={SEED}, or --replay {SEED}: {short}"
