"""G21: sixty-four clients change one flow at the same time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Generator
from unittest import mock
from uuid import UUID

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db import faults
from flowfabric.db.pool import connect
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError
from tests.engine.joins.invariants import broken_invariants
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.proofs.storm.conflicts import Refused, refused
from tests.proofs.storm.guest import Board, Guest

CLIENTS = 64
FIRST_MEMBERS = 20
FLOW_ID = UUID("f1000000-0000-4000-8000-000000000002")
DEADLOCK = "40P01"

DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


class Conflicts:
    """What the server refused: how often each SQLSTATE, and at which statements deadlocks."""

    def __init__(self) -> None:
        self.states: Counter[str] = Counter()
        self.deadlocked: Counter[str] = Counter()

    @contextlib.contextmanager
    def counted(self) -> Generator[None]:
        as_flowfabric_error = faults.as_flowfabric_error

        def counting(error: BaseException, operation: str) -> FlowFabricError:
            state = str(getattr(error, "sqlstate", None) or "none")
            self.states[state] += 1
            if state == DEADLOCK:
                self.deadlocked[operation] += 1
            return as_flowfabric_error(error, operation)

        with mock.patch.object(faults, "as_flowfabric_error", counting):
            yield


class Storm(msgspec.Struct, frozen=True):
    """What was left after it."""

    board: Board
    conflicts: Conflicts
    deadlocks: int
    broken: dict[str, list[str]]
    refused: Refused


async def stormed(arena: Arena, dsn: str, each: int) -> Storm:
    """Every client does so many operations on the same flow."""
    board, conflicts = Board(FLOW_ID), Conflicts()
    config = DatabaseConfig(dsn=dsn, pool_size=1)
    engines = await asyncio.gather(*(Engine.connect(config) for _ in range(CLIENTS)))
    chances = [arena.chance(f"storm {number}") for number in range(CLIENTS)]
    guests = [
        Guest(engine, board, chance, number)
        for number, (engine, chance) in enumerate(zip(engines, chances, strict=True))
    ]
    try:
        await engines[0].create_flow(FLOW_ID, flow_kind="storm")
        for _ in range(FIRST_MEMBERS):
            await guests[0]._add()
        with conflicts.counted():
            await asyncio.gather(*(guest.act(each) for guest in guests))
        while await engines[0].dispatch():
            pass
        conflicted = await refused(engines[0])
    finally:
        await asyncio.gather(*(engine.close() for engine in engines))
    db = await connect(config, role="tests")
    try:
        # Those who left have told the statistics by then.
        deadlocks = await db.fetchval(DEADLOCKS)
        return Storm(board, conflicts, deadlocks, await broken_invariants(db), conflicted)
    finally:
        await db.close()


def proven(arena: Arena, each: int) -> list[Figure]:
    with arena.database() as dsn:
        storm = asyncio.run(stormed(arena, dsn, each))
    board, conflicts = storm.board, storm.conflicts
    for line in (*board.raw, *storm.broken):
        arena.say(f"storm, seed {arena.seed}: {line}")
    asked = f"{board.asked} operations of {CLIENTS} clients"
    counted = ", ".join(f"{count} {state}" for state, count in sorted(conflicts.states.items()))
    answered = ", ".join(f"{count} {kind}" for kind, count in sorted(board.answers.items()))
    deadlocked = f" ({dict(conflicts.deadlocked)})" if conflicts.deadlocked else ""
    return [
        Figure(
            "G21",
            "raw SQLSTATEs surfaced by a storm on one flow",
            f"{len(board.raw)} of {asked} ({answered})",
            "0",
            held=board.asked == CLIENTS * each and not board.raw,
        ),
        Figure(
            "G21",
            "operations that gave up after conflicts",
            f"{board.answers['retry exhausted']} of {board.asked}",
            "0",
            held=not board.answers["retry exhausted"],
        ),
        Figure(
            "G21",
            "deadlocks in it",
            f"{max(storm.deadlocks, conflicts.states[DEADLOCK])}{deadlocked}"
            f" beside {counted or 'no conflicts'}",
            "0",
            held=not storm.deadlocks and not conflicts.states[DEADLOCK],
        ),
        Figure(
            "G21",
            "controls that the server refused to commit, once, twice and three times:"
            " not run again, or not given up as RetryExhausted",
            "; ".join(
                [f"{len(storm.refused.wrong)} of {storm.refused.calls}", *storm.refused.wrong[:2]]
            ),
            "0",
            held=storm.refused.calls > 0 and not storm.refused.wrong,
        ),
        Figure(
            "G8",
            "flow invariants broken after it",
            ", ".join(storm.broken) or "none",
            "none",
            held=not storm.broken,
        ),
    ]


STORM = Proof(
    "storm",
    lambda arena: proven(arena, 6),
    lambda arena: proven(arena, 60),
    claims=("G8", "G21"),
)
