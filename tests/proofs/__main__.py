"""`make prove`: run the proofs at full size and print one table. `--help` tells the rest."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from flowfabric.testing import TestServer
from tests.proofs.arena import Arena
from tests.proofs.catalogue import PROOFS
from tests.proofs.figures import Row, show
from tests.proofs.proof import Proof, verdict


def main() -> int:
    """Run what the command line asks for; 1 if a figure fell short, 2 for a bad command line."""
    options = _options()
    chosen = [proof for proof in PROOFS if not options.only or proof.name in options.only]
    if options.list:
        for proof in PROOFS:
            print(f"{proof.name:<15} {', '.join(proof.claims)}")  # noqa: T201
        return 0
    # Proofs provoke what workers warn of.
    logging.getLogger("flowfabric").addHandler(logging.NullHandler())
    server = TestServer.start()
    try:
        rows = [
            row
            for proof in chosen
            for row in _run(proof, Arena(server, options.seed), quick=options.quick)
        ]
    finally:
        asyncio.run(server.drop_template())
        server.stop()
    show(rows)
    if options.report is not None:
        options.report.write_bytes(msgspec.json.encode(rows))
    return 0 if all(row.figure.held for row in rows) else 1


def _run(proof: Proof, arena: Arena, *, quick: bool) -> Sequence[Row]:
    arena.say(f"{proof.name} (seed {arena.seed}) ...")
    begun = time.monotonic()
    figures = verdict(proof, arena, quick=quick)
    seconds = time.monotonic() - begun
    arena.say(f"{proof.name} took {seconds:.1f} s")
    return [Row(proof.name, figure, seconds) for figure in figures]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.proofs", description=__doc__)
    names = [proof.name for proof in PROOFS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help="just these")
    parser.add_argument("--quick", action="store_true", help="the size that runs in `make test`")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (default 1)")
    parser.add_argument(
        "--replay", type=int, metavar="SEED", dest="seed", help="repeat the run of this seed"
    )
    parser.add_argument("--report", type=Path, help="write the rows of the table here, as JSON")
    parser.add_argument("--list", action="store_true", help="name the proofs and end")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
