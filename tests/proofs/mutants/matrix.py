"""What was run against which fault, what noticed it, and what that says of the promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from tests.proofs.mutants.mutant import Mutant
from tests.proofs.mutants.nursery import Catcher, Verdict
from tests.proofs.proof import Proof


class Cell(msgspec.Struct, frozen=True):
    """One fault and what is run against it."""

    mutant: Mutant
    catcher: Catcher


class Matrix:
    """Faults in rows, proofs in columns."""

    def __init__(
        self, mutants: Sequence[Mutant], proofs: Sequence[Proof], verdicts: Mapping[Cell, Verdict]
    ) -> None:
        self._mutants, self._proofs, self._verdicts = mutants, proofs, verdicts

    def caught_by(self, mutant: Mutant) -> list[str]:
        """The proofs that noticed the fault."""
        return [proof.name for proof in self._proofs if self._caught(mutant, proof.name)]

    def missed(self) -> list[str]:
        """The proofs and tests that were to notice a fault and did not."""
        return [
            f"{mutant.name}: not noticed by {cell.catcher}"
            for mutant in self._mutants
            for cell in named(mutant)
            if not self._verdicts[cell].caught(mutant)
        ]

    def unproven(self) -> list[str]:
        """The promises that a proof claims, of which no proof that claims it noticed a fault."""
        shown = {
            promise
            for mutant in self._mutants
            for promise in mutant.breaks
            for proof in self._proofs
            if promise in proof.claims and self._shows(mutant, proof.name, promise)
        }
        return sorted({each for proof in self._proofs for each in proof.claims} - shown)

    def idle(self) -> list[str]:
        """The proofs that noticed no fault at all."""
        busy = {name for mutant in self._mutants for name in self.caught_by(mutant)}
        return [proof.name for proof in self._proofs if proof.name not in busy]

    def show(self) -> None:
        """Print both tables, as wide as they need to be where nobody looks at a terminal."""
        console = Console()
        wide = Console(width=None if console.is_terminal else 240)
        wide.print(self._of_faults())
        wide.print("✓ noticed, · not run, NO not noticed, ! the run is worth nothing")
        wide.print(self._of_promises())

    def _of_faults(self) -> Table:
        caught = sum(bool(self.caught_by(mutant)) for mutant in self._mutants)
        drawn = Table(
            title=f"{caught} of {len(self._mutants)} planted faults noticed by a proof",
            title_justify="left",
            box=box.SIMPLE,
            padding=(0, 1, 0, 0),
        )
        drawn.add_column("fault")
        drawn.add_column("breaks")
        for proof in self._proofs:
            drawn.add_column(proof.name.replace("_", "\n"), justify="center")
        drawn.add_column("tests", justify="center")
        for mutant in self._mutants:
            signs = [self._sign(mutant, Catcher(proof.name)) for proof in self._proofs]
            signs.append(self._sign(mutant, Catcher(tests=mutant.tests)))
            wrong = "NO" in signs or "!" in signs
            style = "bold red" if wrong else None
            drawn.add_row(mutant.name, ", ".join(mutant.breaks), *signs, style=style)
        return drawn

    def _of_promises(self) -> Table:
        drawn = Table(title="Promises", title_justify="left", box=box.SIMPLE)
        for heading in ("promise", "claimed by", "faults against it", "noticed by"):
            drawn.add_column(heading)
        unproven = self.unproven()
        claimed = {each for proof in self._proofs for each in proof.claims}
        for promise in sorted(claimed, key=lambda each: (each[0], int(each[1:]))):
            proofs = [proof.name for proof in self._proofs if promise in proof.claims]
            against = [mutant for mutant in self._mutants if promise in mutant.breaks]
            noticed = {
                name for name in proofs for each in against if self._shows(each, name, promise)
            }
            drawn.add_row(
                promise,
                ", ".join(proofs),
                str(len(against)),
                ", ".join(sorted(noticed)) or "NOBODY",
                style="bold red" if promise in unproven else None,
            )
        return drawn

    def _shows(self, mutant: Mutant, proof: str, promise: str) -> bool:
        """Did a figure of this very promise fall short?"""
        verdict = self._verdicts.get(Cell(mutant, Catcher(proof)))
        return verdict is not None and promise in verdict.promises

    def _caught(self, mutant: Mutant, proof: str) -> bool:
        verdict = self._verdicts.get(Cell(mutant, Catcher(proof)))
        return verdict is not None and verdict.caught(mutant)

    def _sign(self, mutant: Mutant, catcher: Catcher) -> str:
        verdict = self._verdicts.get(Cell(mutant, catcher))
        if verdict is None:
            return "·"
        if verdict.caught(mutant):
            return "✓"
        return "!" if verdict.broken else "NO"


def named(mutant: Mutant) -> list[Cell]:
    """What must notice the fault: its proofs, and its tests where it has any."""
    catchers = [Catcher(proof) for proof in mutant.proofs]
    if mutant.tests:
        catchers.append(Catcher(tests=mutant.tests))
    return [Cell(mutant, catcher) for catcher in catchers]
