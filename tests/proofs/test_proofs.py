"""Every proof holds at the size that fits into a test run; `make prove` runs them in full."""

from __future__ import annotations

import os
import re

import msgspec
import pytest

from flowfabric.testing import TestServer
from tests.proofs.arena import Arena
from tests.proofs.catalogue import PROOFS
from tests.proofs.figures import Figure
from tests.proofs.proof import TO_ITS_END, Proof, verdict

SEED = int(os.environ.get("FF_PROOF_SEED", "1"))
PROMISE = re.compile(r"[A-Z]\d+")

EACH = [
    pytest.param(proof, id=proof.name, marks=[pytest.mark.timing] if proof.timed else [])
    for proof in PROOFS
]


@pytest.mark.parametrize("proof", EACH)
def test_what_is_promised_holds(proof: Proof, ff_server: TestServer) -> None:
    sized = msgspec.structs.replace(proof, quick=proof.sample or proof.quick)
    figures = verdict(sized, Arena(ff_server, SEED, quiet=True), quick=True)

    short = [figure for figure in figures if not figure.held]
    assert figures
    if all(figure.skipped for figure in figures):
        pytest.skip(figures[0].reached)
    assert not short, f"again with FF_PROOF_SEED={SEED}, or --replay {SEED}: {short}"
    spoken_of = {each for figure in figures for each in PROMISE.findall(figure.promise)}
    assert spoken_of == set(proof.claims)


def test_an_error_that_a_proof_does_not_expect_is_a_verdict(ff_server: TestServer) -> None:
    def breaks(_: Arena) -> list[Figure]:
        raise RuntimeError("stuck")

    arena = Arena(ff_server, SEED, quiet=True)

    [figure] = verdict(Proof("breaks", breaks, breaks, claims=("G1", "G2")), arena, quick=True)

    assert (figure.promise, figure.what, figure.held) == ("G1, G2", TO_ITS_END, False)
    assert figure.reached == "RuntimeError: stuck"
