"""G7: every mutation is safe to repeat when its answer was lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any, Final

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError, RetryExhausted, TransportError
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.fingerprint import changed, fingerprint, tables
from tests.proofs.lines import LossyLine
from tests.proofs.lost_ack.executions import OF_EXECUTIONS
from tests.proofs.lost_ack.flows import OF_FLOWS
from tests.proofs.lost_ack.operation import Operation
from tests.proofs.lost_ack.subjects import each
from tests.proofs.proof import Proof
from tests.worker.facts import told_twice

OPERATIONS: Final = (*OF_EXECUTIONS, *OF_FLOWS)
A_LINE_FOR: Final = 3
MOST_LINES: Final = 6
"""Callers at a time, each with a line of its own; one for every few calls."""


class Outcome(msgspec.Struct):
    """What became of one operation."""

    calls: int
    cuts: int = 0
    effects: int = 0
    duplicates: int = 0
    changed: list[str] = []
    wrong: Counter[str] = msgspec.field(default_factory=Counter[str])

    @property
    def held(self) -> bool:
        return (
            self.cuts == self.effects == self.calls
            and not self.duplicates
            and not self.changed
            and not self.wrong
        )


async def _tried(
    operation: Operation, good: Engine, db: Connection, number: int, chance: random.Random
) -> Outcome:
    """Lose the answer to the call on every subject, then make every call again."""
    outcome = Outcome(number)
    subjects = await operation.begin(good, number)
    await _cut_all(operation, good.pool.config.dsn, subjects, outcome, chance)
    done = await db.fetchval(operation.effects)
    outcome.effects = done // operation.each
    if operation.repeats:
        outcome.duplicates = max(0, done - operation.each * number) + await told_twice(db)
    else:
        await _repeat_all(operation, good, db, subjects, outcome)
    return outcome


async def _cut_all(
    operation: Operation, dsn: str, subjects: Sequence[Any], outcome: Outcome, chance: random.Random
) -> None:
    todo = iter(subjects)

    async def caller() -> None:
        async with _lossy(dsn) as (line, engine):
            await _cut_some(operation, line, engine, todo, outcome, chance)
            outcome.cuts += line.lost

    callers = min(MOST_LINES, len(subjects) // A_LINE_FOR)
    await asyncio.gather(*(caller() for _ in range(callers)))


async def _cut_some(
    operation: Operation,
    line: LossyLine,
    engine: Engine,
    todo: Iterator[Any],
    outcome: Outcome,
    chance: random.Random,
) -> None:
    for subject in todo:
        line.lose(after=chance.randrange(operation.commits))
        answer = await _asked(operation, engine, subject)
        if operation.repeats:
            _judge(operation, answer, subject, outcome)
        elif not isinstance(answer, TransportError):
            outcome.wrong[f"not cut: {answer!r}"] += 1
            line.mend()


async def _repeat_all(
    operation: Operation, engine: Engine, db: Connection, subjects: Sequence[Any], outcome: Outcome
) -> None:
    before = await fingerprint(db, versions=False)

    async def repeat(subject: Any) -> None:
        _judge(operation, await _asked(operation, engine, subject), subject, outcome)

    await each(subjects, repeat)
    if not operation.writes:
        outcome.changed = changed(before, await fingerprint(db, versions=False))
    effects = await db.fetchval(operation.effects) // operation.each
    outcome.duplicates = effects - outcome.effects - operation.adds * outcome.calls
    outcome.duplicates += await told_twice(db)


async def _asked(operation: Operation, engine: Engine, subject: Any) -> Any:
    """The answer, also where it is an error; what lost against its neighbours is asked again."""
    while True:
        try:
            return await operation.call(engine, subject)
        except RetryExhausted:
            continue
        except FlowFabricError as error:
            return error


def _judge(operation: Operation, answer: Any, subject: Any, outcome: Outcome) -> None:
    try:
        right = operation.right(answer, subject)
    except (AttributeError, TypeError):  # an answer of another kind
        right = False
    if not right:
        said = answer[0] if isinstance(answer, list) and answer else answer
        outcome.wrong[type(said).__name__] += 1


@contextlib.asynccontextmanager
async def _lossy(dsn: str) -> AsyncGenerator[tuple[LossyLine, Engine]]:
    async with LossyLine.to(dsn) as line:
        engine = await Engine.connect(DatabaseConfig(dsn=line.dsn, pool_size=1))
        try:
            yield line, engine
        finally:
            await engine.close()


async def _filled(db: Connection) -> set[str]:
    """The tables that have rows."""
    found = await tables(db)
    return {each for each in found if await db.fetchval(f"SELECT 1 FROM ff.{each} LIMIT 1")}


async def _try_all(arena: Arena, dsn: str, number: int, outcomes: dict[str, Outcome]) -> None:
    """One operation after the other; of each nothing is left to the next."""
    good = await Engine.connect(DatabaseConfig(dsn=dsn, pool_size=4))
    db = await connect(DatabaseConfig(dsn=dsn), role="tests")
    try:
        fresh = await _filled(db)
        for operation in OPERATIONS:
            chance = arena.chance(f"lost_ack {operation.name}")
            outcome = outcomes[operation.name] = await _tried(operation, good, db, number, chance)
            if not outcome.held:
                arena.say(f"lost_ack: {operation.name}: {outcome}")
            left = sorted(await _filled(db) - fresh)
            await db.execute(f"TRUNCATE {', '.join(f'ff.{table}' for table in left)}")
    finally:
        await db.close()
        await good.close()


def _prove(arena: Arena, number: int) -> list[Figure]:
    outcomes: dict[str, Outcome] = {}
    worker = logging.getLogger("flowfabric.worker")
    worker.disabled = True  # it tells of every line that is cut
    try:
        with arena.database() as dsn:
            asyncio.run(_try_all(arena, dsn, number, outcomes))
    finally:
        worker.disabled = False
    return _figures(outcomes)


def _figures(outcomes: dict[str, Outcome]) -> list[Figure]:
    calls = sum(outcome.calls for outcome in outcomes.values())
    cuts = sum(outcome.cuts for outcome in outcomes.values())
    once = sum(min(outcome.effects, outcome.calls) for outcome in outcomes.values())
    twice = {
        name: outcome for name, outcome in outcomes.items() if outcome.duplicates or outcome.changed
    }
    wrong = {name: outcome.wrong for name, outcome in outcomes.items() if outcome.wrong}
    refused = sorted(operation.name for operation in OPERATIONS if operation.refused)
    conflicts = sum(each.total() for each in wrong.values())
    return [
        Figure(
            "G7",
            f"answers lost after the commit, {len(outcomes)} operations",
            f"{cuts:,} of {calls:,}, {once:,} done",
            "each lost, each done",
            held=cuts == once == calls,
        ),
        Figure(
            "G7",
            "done or written twice by the repeated call",
            "; ".join(f"{name}: {each.duplicates} {each.changed}" for name, each in twice.items())
            or "0",
            "0",
            held=not twice,
        ),
        Figure(
            "G7",
            "repeated calls that were not answered as the specs say",
            "; ".join(
                (f"{conflicts:,}", *(f"{name}: {dict(each)}" for name, each in wrong.items()))
            ),
            "0",
            held=not conflicts,
        ),
        Figure(
            "G7",
            "of these answered by a refusal, because the specs say so",
            f"{len(refused)} operations: {', '.join(refused)}",
            "those of the specs",
            held=not wrong.keys() & set(refused),
        ),
    ]


def quick(arena: Arena) -> list[Figure]:
    return _prove(arena, 4)


def full(arena: Arena) -> list[Figure]:
    return _prove(arena, 1_000)


LOST_ACK: Final = Proof("lost_ack", quick, full, claims=("G7",))
