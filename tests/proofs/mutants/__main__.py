"""`make mutants`: plant one fault after the other and see that each is found."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flowfabric.testing import TestServer
from tests.proofs.mutants.mutant import Catcher, Mutant
from tests.proofs.mutants.nursery import Verdict, tried
from tests.proofs.mutants.planted import MUTANTS

AT_ONCE = 2


def main() -> int:
    """Run what the command line asks for; 1 if a mutant lives or a run is worth nothing."""
    options = _options()
    if options.list:
        print("\n".join(mutant.name for mutant in MUTANTS))  # noqa: T201
        return 0
    chosen = [mutant for mutant in MUTANTS if not options.only or mutant.name in options.only]
    catchers = list(dict.fromkeys(mutant.caught_by for mutant in chosen))
    server = TestServer.start()
    try:
        dsn = server.dsn_of("postgres")
        with ThreadPoolExecutor(AT_ONCE) as hands:
            controls = list(hands.map(lambda each: _control(each, dsn, options.seed), catchers))
            verdicts = list(hands.map(lambda each: _planted(each, dsn, options.seed), chosen))
    finally:
        asyncio.run(server.drop_template())
        server.stop()
    sound = dict(zip(catchers, controls, strict=True))
    _show(chosen, verdicts, sound, options.seed)
    caught = sum(bool(verdict.failed) for verdict in verdicts)
    healthy = all(not each.failed and not each.broken for each in controls)
    return 0 if healthy and caught == len(chosen) else 1


def _control(catcher: Catcher, dsn: str, seed: int) -> Verdict:
    """Without a fault it must be content, or its complaints mean nothing."""
    verdict = tried(None, catcher, dsn=dsn, seed=seed)
    if wrong := verdict.failed or verdict.broken:
        _say(f"without any fault, {catcher} fails: {wrong}")
    return verdict


def _planted(mutant: Mutant, dsn: str, seed: int) -> Verdict:
    verdict = tried(mutant, mutant.caught_by, dsn=dsn, seed=seed)
    again = f"python -m tests.proofs.mutants --seed {seed} --only {mutant.name!r}"
    if verdict.failed:
        _say(f"{mutant.name}: caught by {verdict.failed} (seed {seed}); again with {again}")
    else:
        _say(f"{mutant.name}: NOT CAUGHT; {verdict.broken or mutant.caught_by}; again with {again}")
    return verdict


def _show(
    mutants: Sequence[Mutant], verdicts: Sequence[Verdict], sound: dict[Catcher, Verdict], seed: int
) -> None:
    caught = sum(bool(verdict.failed) for verdict in verdicts)
    drawn = Table(title=f"{caught} of {len(mutants)} planted faults caught", title_justify="left")
    for heading in ("mutant", "caught by", "seed"):
        drawn.add_column(heading)
    drawn.add_column("seconds", justify="right")
    for mutant, verdict in zip(mutants, verdicts, strict=True):
        control = sound[mutant.caught_by]
        unsound = control.failed or control.broken
        drawn.add_row(
            mutant.name,
            escape(verdict.failed) or "NOT CAUGHT" + (" (the run broke)" if verdict.broken else ""),
            str(seed),
            f"{verdict.seconds:.0f}",
            style="bold red" if unsound or not verdict.failed else None,
        )
    console = Console()
    Console(width=None if console.is_terminal else 180).print(drawn)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 the voice of a command


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.proofs.mutants", description=__doc__)
    names = [mutant.name for mutant in MUTANTS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help="just these")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (default 1)")
    parser.add_argument("--list", action="store_true", help="name the mutants and end")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
