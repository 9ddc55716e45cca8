"""Every planted fault still fits the code it is planted into; `make mutants` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proofs.catalogue import PROOFS
from tests.proofs.mutants.mutant import Change, DoesNotApply, Mutant
from tests.proofs.mutants.nursery import TREE, copied
from tests.proofs.mutants.planted import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_and_compiles(mutant: Mutant) -> None:
    for change in mutant.changes:
        text = change.planted(TREE)

        assert text != change.planted(TREE).replace(change.new, change.old, 1)
        if change.file.endswith(".py"):
            compile(text, change.file, "exec")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_whoever_is_to_catch_a_mutant_is_there(mutant: Mutant) -> None:
    catcher = mutant.caught_by
    assert bool(catcher.tests) != bool(catcher.proof)
    assert all((TREE / each.partition("::")[0]).is_file() for each in catcher.tests)
    assert not catcher.proof or catcher.proof in {proof.name for proof in PROOFS}


def test_names_are_given_once() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_text_that_is_not_there_once_is_an_error() -> None:
    for missing in ("this is nowhere in the file", "\n"):
        with pytest.raises(DoesNotApply):
            Change("db/faults.py", missing, "").planted(TREE)


def test_a_mutant_is_planted_in_a_copy_only() -> None:
    mutant = MUTANTS[0]
    [change, *_] = mutant.changes
    with copied() as tree:
        mutant.plant(tree)
        planted = (tree / "src/flowfabric" / change.file).read_text()

    assert change.old not in planted
    assert change.old in (TREE / "src/flowfabric" / change.file).read_text()
    assert not Path(tree).exists()
