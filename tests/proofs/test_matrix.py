"""What a matrix of faults and proofs says of the promises."""

from __future__ import annotations

from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.mutants.matrix import Cell, Matrix, named
from tests.proofs.mutants.mutant import Mutant
from tests.proofs.mutants.nursery import Catcher, Verdict
from tests.proofs.notify import Ran, deaf_figure
from tests.proofs.proof import Proof


def never(_: Arena) -> list[Figure]:
    raise NotImplementedError


FIRST = Proof("first", never, never, claims=("G1", "G2"))
SECOND = Proof("second", never, never, claims=("G2",))
FAULT = Mutant("a fault", ("G1",), (), proofs=("first",), tests=("test_it.py",))
OTHER = Mutant("another", ("G2",), (), proofs=("first", "second"))

CONTENT = Verdict(1.0)
BROKEN = Verdict(1.0, broken="it did not start")


def noticed(*promises: str) -> Verdict:
    return Verdict(1.0, failed="a figure fell short", promises=frozenset(promises))


def matrix(*rows: tuple[Mutant, list[Verdict]]) -> Matrix:
    """The verdicts of each fault, in the order of what must notice it."""
    verdicts = {
        cell: verdict
        for mutant, found in rows
        for cell, verdict in zip(named(mutant), found, strict=True)
    }
    return Matrix([mutant for mutant, _ in rows], (FIRST, SECOND), verdicts)


def test_all_is_well_where_every_promise_has_a_fault_that_its_proof_noticed() -> None:
    found = matrix((FAULT, [noticed("G1"), noticed()]), (OTHER, [noticed("G2"), noticed("G2")]))

    assert (found.missed(), found.unproven(), found.idle()) == ([], [], [])


def test_a_test_that_notices_a_fault_proves_no_promise() -> None:
    found = matrix((FAULT, [CONTENT, noticed()]), (OTHER, [noticed("G2"), noticed("G2")]))

    assert found.unproven() == ["G1"]
    assert found.missed() == ["a fault: not noticed by first"]


def test_a_promise_without_a_fault_is_unproven_and_a_proof_that_notices_nothing_idle() -> None:
    found = matrix((FAULT, [noticed("G1"), noticed()]))

    assert (found.unproven(), found.idle()) == (["G2"], ["second"])


def test_a_figure_of_another_promise_notices_nothing() -> None:
    assert not noticed("G2").caught(FAULT)
    assert noticed("G1", "G2").caught(FAULT)


def test_a_run_that_is_worth_nothing_notices_nothing() -> None:
    found = matrix((FAULT, [BROKEN, noticed()]))

    assert found.caught_by(FAULT) == []
    assert found.missed() == ["a fault: not noticed by first"]


def test_whoever_was_not_asked_did_not_notice() -> None:
    assert Cell(FAULT, Catcher("second")) not in named(FAULT)
    assert matrix((FAULT, [noticed("G1"), noticed()])).caught_by(FAULT) == ["first"]


def test_tests_that_were_skipped_or_left_out_did_not_pass() -> None:
    def held(passed: int, skipped: int, about: int = 10) -> bool:
        runs = [Ran(passed, (), skipped, 0), Ran(5, (), 0, 0)]
        return deaf_figure(100, about, runs).held

    assert held(passed=85, skipped=0)
    assert not held(passed=84, skipped=1)
    assert not held(passed=84, skipped=0)
    assert "1 skipped, 10 left out" in deaf_figure(100, 10, [Ran(89, (), 1, 0)]).reached
