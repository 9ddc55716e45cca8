"""What a mutant is: a place in the package, the fault planted there, the promise that it breaks."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.proofs.mutants.place import PACKAGE, Match, Place, Span, filled, matches

__all__ = ["PACKAGE", "DoesNotApply", "Edit", "Mutant"]


class DoesNotApply(Exception):
    """What a mutant replaces is not there exactly once: the mutant is out of date."""


class Edit(msgspec.Struct, frozen=True):
    """In `place` the words `find` stand exactly once; `put` takes their place."""

    place: Place
    find: str
    put: str
    every: bool = False
    """Replace them wherever they stand: a function of the database that was defined anew."""

    def planted(self, tree: Path) -> dict[Path, str]:
        """The files that have the fault in them, with their new text."""
        found = self._found(tree)
        if not found or (len(found) > 1 and not self.every):
            raise DoesNotApply(f"{self.place} has {len(found)} times {self.find!r}")
        planted: dict[Path, str] = {}
        for span, match in reversed(found):  # from the end, so that what comes before stays put
            text = planted.get(span.path) or span.path.read_text(encoding="utf-8")
            start, end = span.start + match.start, span.start + match.end
            planted[span.path] = text[:start] + filled(self.put, match.variables) + text[end:]
        return planted

    def _found(self, tree: Path) -> list[tuple[Span, Match]]:
        return [
            (span, match)
            for span in self.place.spans(tree)
            for match in matches(
                span.path.read_text(encoding="utf-8")[span.start : span.end], self.find
            )
        ]


class Mutant(msgspec.Struct, frozen=True):
    """One fault. It may take several edits to be one that runs."""

    name: str
    breaks: tuple[str, ...]
    """The promises that do not hold with it."""
    edits: tuple[Edit, ...]
    proofs: tuple[str, ...] = ()
    """Proofs that claim one of these promises; each must notice the fault."""
    tests: tuple[str, ...] = ()
    """Files or node ids under `tests`; one of them must notice it too."""

    def plant(self, tree: Path) -> None:
        """The fault is in this copy of the tree."""
        for edit in self.edits:
            for path, text in edit.planted(tree).items():
                path.write_text(text, encoding="utf-8")
