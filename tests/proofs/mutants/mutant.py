"""What a mutant is: some text of the package replaced by a fault, and who is to notice."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

PACKAGE: Final = Path("src/flowfabric")


class DoesNotApply(Exception):
    """The text that a mutant replaces is not there exactly once: the mutant is out of date."""


class Change(msgspec.Struct, frozen=True):
    """`old` stands exactly once in the file; `new` takes its place."""

    file: str
    old: str
    new: str

    def planted(self, tree: Path) -> str:
        """The text of the file with the fault in it."""
        text = (tree / PACKAGE / self.file).read_text(encoding="utf-8")
        if (times := text.count(self.old)) != 1:
            raise DoesNotApply(f"{self.file} has {times} times {self.old!r}")
        return text.replace(self.old, self.new)


class Catcher(msgspec.Struct, frozen=True):
    """What is run against a mutant: tests by their node ids, or one proof at its quick size."""

    tests: tuple[str, ...] = ()
    proof: str = ""

    def __str__(self) -> str:
        return f"proof {self.proof}" if self.proof else " ".join(self.tests)


class Mutant(msgspec.Struct, frozen=True):
    """One fault. It may take several changes to be one that runs."""

    name: str
    changes: tuple[Change, ...]
    caught_by: Catcher

    def plant(self, tree: Path) -> None:
        """The fault is in this copy of the tree."""
        for change in self.changes:
            (tree / PACKAGE / change.file).write_text(change.planted(tree), encoding="utf-8")


def tests(*node_ids: str) -> Catcher:
    return Catcher(tests=tuple(f"tests/{each}" for each in node_ids))


def proof(name: str) -> Catcher:
    return Catcher(proof=name)
