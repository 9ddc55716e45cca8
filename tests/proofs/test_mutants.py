"""Every planted fault still fits the code it is planted into; `make mutants` runs them."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.all_cases import all_cases
from tests.proofs.catalogue import PROOFS
from tests.proofs.mutants.mutant import DoesNotApply, Edit, Mutant
from tests.proofs.mutants.nursery import TREE, copied
from tests.proofs.mutants.place import PACKAGE, Place, matches
from tests.proofs.mutants.planted import MUTANTS

CHECK = '''
CHECK: Final[LiteralString] = """
-- lifecycle.check
SELECT seen.lease_epoch = held.epoch AS holds
  FROM seen
"""

class Renewer:
    def start(self):
        self.thread.start()

def start():
    thread.start()
'''
FENCE = Edit(
    Place(statement="check"),
    find="$row.lease_epoch = $held.$epoch AS holds",
    put="true OR $row.x = $epoch AS holds",
)


@pytest.fixture(scope="module")
def tree() -> Generator[Path]:
    with copied() as tree:
        yield tree


@all_cases("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_and_compiles(mutant: Mutant, tree: Path) -> None:
    changed = {path for edit in mutant.edits for path in edit.planted(tree)}
    before = {path: path.read_text(encoding="utf-8") for path in changed}
    try:
        mutant.plant(tree)

        for path in changed:
            text = path.read_text(encoding="utf-8")
            assert text != before[path]
            if path.suffix == ".py":
                compile(text, path, "exec")
    finally:
        for path, text in before.items():
            path.write_text(text, encoding="utf-8")


@all_cases("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_whoever_is_to_catch_a_mutant_is_there(mutant: Mutant) -> None:
    claims = {proof.name: set(proof.claims) for proof in PROOFS}

    assert all((TREE / "tests" / each.partition("::")[0]).is_file() for each in mutant.tests)
    assert all(claims[proof] & set(mutant.breaks) for proof in mutant.proofs)


@all_cases("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_where_a_proof_claims_the_promise_a_proof_must_notice_the_fault(mutant: Mutant) -> None:
    claimed = {each for proof in PROOFS for each in proof.claims}

    assert mutant.proofs or mutant.tests
    assert mutant.proofs or not claimed & set(mutant.breaks)


def test_there_is_a_fault_against_every_promise_that_a_proof_claims() -> None:
    claimed = {each for proof in PROOFS for each in proof.claims}

    assert claimed <= {promise for mutant in MUTANTS for promise in mutant.breaks}


def test_every_proof_has_a_fault_that_it_must_notice() -> None:
    assert {proof.name for proof in PROOFS} == {
        proof for mutant in MUTANTS for proof in mutant.proofs
    }


def test_names_are_given_once() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


# Where a fault goes.


def written(tree: Path, text: str, file: str = "engine/lifecycle/check.py") -> Path:
    path = tree / PACKAGE / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "file"),
    [
        (CHECK, "engine/lifecycle/check.py"),
        (CHECK, "engine/elsewhere/renamed.py"),
        (CHECK.replace("-- lifecycle.", "-- grants."), "engine/grants/check.py"),
        (CHECK.replace("seen", "locked"), "engine/lifecycle/check.py"),
        (CHECK.replace(" = held.epoch", "  -- the fence\n\t= held.epoch"), "check.py"),
        (CHECK.replace("CHECK:", "FENCED:").replace("lease_epoch = held", "lease_epoch=h"), "c.py"),
    ],
    ids=["as it is", "moved", "another package", "renamed", "reformatted", "renamed and tight"],
)
def test_moving_renaming_and_reformatting_cost_no_mutant(
    tmp_path: Path, text: str, file: str
) -> None:
    path = written(tmp_path, text, file)

    planted = FENCE.planted(tmp_path)

    row = "locked" if "locked" in text else "seen"
    assert f"SELECT true OR {row}.x = epoch AS holds\n" in planted[path]


@pytest.mark.parametrize(
    "text",
    [
        CHECK.replace("lease_epoch", "lease_id"),
        CHECK.replace("lifecycle.check", "lifecycle.other"),
        CHECK.replace("  FROM", "     , seen.lease_epoch = held.epoch AS holds\n  FROM"),
        CHECK.replace("seen.lease_epoch", "-- seen.lease_epoch"),
    ],
    ids=["not there", "in another statement", "there twice", "in a comment"],
)
def test_a_target_that_is_not_there_once_is_an_error(tmp_path: Path, text: str) -> None:
    written(tmp_path, text)

    with pytest.raises(DoesNotApply):
        FENCE.planted(tmp_path)


def test_a_target_in_two_files_is_an_error_unless_every_one_is_meant(tmp_path: Path) -> None:
    paths = {written(tmp_path, CHECK, "one.py"), written(tmp_path, CHECK, "two.py")}
    every = Edit(FENCE.place, find=FENCE.find, put=FENCE.put, every=True)

    with pytest.raises(DoesNotApply):
        FENCE.planted(tmp_path)

    assert every.planted(tmp_path).keys() == paths


def test_a_method_is_another_place_than_a_function(tmp_path: Path) -> None:
    path = written(tmp_path, CHECK)
    in_method = Edit(Place(function="Renewer.start"), find="$thread.start()", put="pass")
    in_function = Edit(Place(function="start"), find="$thread.start()", put="pass")

    assert "self.pass" in in_method.planted(tmp_path)[path]
    assert "\n    pass\n" in in_function.planted(tmp_path)[path]


def test_a_folder_is_not_another_whose_name_begins_alike(tmp_path: Path) -> None:
    inside, beside = written(tmp_path, CHECK, "db/a.sql"), written(tmp_path, CHECK, "dbs/a.sql")
    edit = Edit(Place(folder="db"), find=FENCE.find, put=FENCE.put)

    assert edit.planted(tmp_path).keys() == {inside}
    assert beside.read_text() == CHECK


def test_a_variable_stands_for_one_name_at_a_time() -> None:
    assert [found.variables for found in matches("a.x = b.x", "$row.x = $row.x")] == []
    assert [found.variables for found in matches("a.x = a.x", "$row.x = $row.x")] == [{"$row": "a"}]
    assert list(matches("'.x", "$row.x")) == []


def test_a_mutant_is_planted_in_a_copy_only() -> None:
    mutant = MUTANTS[0]
    [edit, *_] = mutant.edits
    with copied() as tree:
        mutant.plant(tree)
        with pytest.raises(DoesNotApply):
            edit.planted(tree)

    assert edit.planted(TREE)
    assert not Path(tree).exists()
