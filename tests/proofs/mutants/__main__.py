"""`make mutants`: plant one fault after the other, and see which proofs notice each."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from flowfabric.testing import TestServer
from tests.proofs.catalogue import PROOFS
from tests.proofs.mutants.matrix import Cell, Matrix, named
from tests.proofs.mutants.mutant import Mutant
from tests.proofs.mutants.nursery import Catcher, Verdict, tried
from tests.proofs.mutants.planted import MUTANTS

AT_ONCE: Final = 2
TIMED: Final = frozenset(proof.name for proof in PROOFS if proof.timed)

T = TypeVar("T")
R = TypeVar("R")


def main() -> int:
    """Run what the command line asks for; 1 if a fault lives or a run is worth nothing."""
    options = _options()
    if options.list:
        for mutant in MUTANTS:
            catchers = ", ".join([*mutant.proofs, *mutant.tests])
            print(f"{mutant.name}: breaks {', '.join(mutant.breaks)}; {catchers}")  # noqa: T201
        return 0
    chosen = [mutant for mutant in MUTANTS if not options.only or mutant.name in options.only]
    cells = [cell for mutant in chosen for cell in _cells(mutant, options)]
    begun = time.monotonic()
    server = TestServer.start()
    try:
        nursery = _Nursery(server.dsn_of("postgres"), options.seed, len(cells))
        catchers = [] if options.bare else list(dict.fromkeys(cell.catcher for cell in cells))
        controls = nursery.all(catchers, nursery.control)
        verdicts = nursery.all(cells, nursery.planted)
    finally:
        asyncio.run(server.drop_template())
        server.stop()
    matrix = Matrix(chosen, PROOFS, dict(zip(cells, verdicts, strict=True)))
    matrix.show()
    faults = [f"without any fault, {each} falls short" for each in controls if each]
    faults += matrix.missed() if not options.proofs else []
    if not (options.only or options.proofs):
        faults += [f"{each}: no proof that claims it noticed a fault" for each in matrix.unproven()]
        faults += [f"{each}: noticed no fault" for each in matrix.idle()]
    for fault in faults:
        _say(fault)
    _say(f"{len(cells)} runs in {(time.monotonic() - begun) / 60:.1f} minutes, seed {options.seed}")
    return 1 if faults else 0


def _cells(mutant: Mutant, options: argparse.Namespace) -> list[Cell]:
    """What is run against it: what must notice it, every proof, or those of the command line."""
    if options.proofs:
        return [Cell(mutant, Catcher(name)) for name in options.proofs]
    if options.all:
        rest = [Cell(mutant, Catcher(proof.name)) for proof in PROOFS]
        return list(dict.fromkeys([*named(mutant), *rest]))
    return named(mutant)


class _Nursery:
    """Runs two at once, and those that bound a time one after the other."""

    def __init__(self, dsn: str, seed: int, total: int) -> None:
        self._dsn, self._seed, self._total = dsn, seed, total
        self._number: Iterator[int] = itertools.count(1)

    def all(self, work: Sequence[T], run: Callable[[T], R]) -> list[R]:
        together = [each for each in work if not _is_timed(each)]
        alone = [each for each in work if _is_timed(each)]
        with ThreadPoolExecutor(AT_ONCE) as hands:
            found = dict(zip(together, hands.map(run, together), strict=True))
        found |= {each: run(each) for each in alone}
        return [found[each] for each in work]

    def control(self, catcher: Catcher) -> str:
        """Its name if it complains without a fault: then its complaints mean nothing."""
        verdict = tried(None, catcher, dsn=self._dsn, seed=self._seed)
        wrong = verdict.failed or verdict.broken
        _say(f"without a fault, {catcher}: {wrong or 'content'} ({verdict.seconds:.0f} s)")
        return str(catcher) if wrong else ""

    def planted(self, cell: Cell) -> Verdict:
        mutant, catcher = cell.mutant, cell.catcher
        verdict = tried(mutant, catcher, dsn=self._dsn, seed=self._seed)
        again = f"--only {mutant.name!r} --seed {self._seed}"
        how = "noticed" if verdict.caught(mutant) else "NOT NOTICED"
        _say(
            f"{next(self._number)}/{self._total} {mutant.name}: {how} by {catcher}"
            f" ({verdict.seconds:.0f} s): {verdict.failed or verdict.broken or 'content'};"
            f" again with python -m tests.proofs.mutants {again}"
        )
        return verdict


def _is_timed(work: object) -> bool:
    catcher = work.catcher if isinstance(work, Cell) else work
    return isinstance(catcher, Catcher) and catcher.proof in TIMED


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 the voice of a command


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.proofs.mutants", description=__doc__)
    faults = [mutant.name for mutant in MUTANTS]
    proofs = [proof.name for proof in PROOFS]
    parser.add_argument("--only", nargs="+", choices=faults, metavar="FAULT", help="just these")
    parser.add_argument("--proofs", nargs="+", choices=proofs, metavar="PROOF", help="by these")
    parser.add_argument("--all", action="store_true", help="every fault by every proof; hours")
    parser.add_argument("--bare", action="store_true", help="skip the runs without a fault")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (default 1)")
    parser.add_argument("--list", action="store_true", help="name the faults and end")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
