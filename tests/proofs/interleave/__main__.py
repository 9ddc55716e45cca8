"""One meeting again: `python -m tests.proofs.interleave held 'complete x' 'cancel_execution x'`."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys

from flowfabric.testing import TestServer
from tests.proofs.interleave.explore import Case, Found, Orders, explore, judged
from tests.proofs.interleave.operations import Operation
from tests.proofs.interleave.programme import PARTS, Part
from tests.proofs.interleave.setting import set_scenes
from tests.proofs.interleave.stage import Stage


def main() -> int:
    """Play it; 1 if something was not as it should be."""
    options = _options()
    server = TestServer.start()
    try:
        dsn = asyncio.run(server.create())
        found = asyncio.run(_play(dsn, options))
    finally:
        asyncio.run(server.drop_template())
        server.stop()
    print(*found.faults, sep="\n")  # noqa: T201
    print(f"{found.equal} of {found.plays} orders equal a serial one")  # noqa: T201
    return 1 if found.faults else 0


async def _play(dsn: str, options: argparse.Namespace) -> Found:
    part = _part(options.situation)
    situation = options.situation.removesuffix(" descending")
    down = options.situation != situation
    stage = await Stage.open(dsn, len(options.operation))
    try:
        chosen = [one for one in part.situations if one.name == situation]
        scenes = await set_scenes(stage, chosen, descending=(down,))
        operations = tuple(_operation(part, name) for name in options.operation)
        case = Case(scenes[options.situation], operations)
        if options.steps is None:
            return await explore(stage, case, random.Random(options.seed), options.orders)
        orders = Orders(stage, case)
        await orders.find()
        play = await stage.play(case.scene, operations, [int(step) for step in options.steps])
        print(play.script, *play.told, sep="\n")  # noqa: T201
        return await judged(stage, case, play, orders)
    finally:
        await stage.close()


def _part(situation: str) -> Part:
    name = situation.removesuffix(" descending")
    return next(part for part in PARTS if name in (each.name for each in part.situations))


def _operation(part: Part, name: str) -> Operation:
    return next(one for one in part.operations if one.name == name)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.proofs.interleave", description=__doc__)
    parser.add_argument("situation")
    parser.add_argument("operation", nargs="+")
    parser.add_argument("--steps", help="whose step it is, each time, such as 0110")
    parser.add_argument("--orders", type=int, default=500, help="at most so many, without --steps")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
