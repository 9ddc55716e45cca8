"""G4: workers are killed in the middle of steps, and a step that is recorded never runs again."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from flowfabric import Client
from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from tests.proofs.arena import Arena
from tests.proofs.durable.crew import crew, read_diary
from tests.proofs.durable.shop import summed
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.worker.facts import eventually, told_twice

SLOTS: Final = 8
TTL: Final = 2.0
BESIDE: Final = 5
"""How many of the steps of an execution are made at once."""

RECORDED: Final = """
SELECT execution_id::text, convert_from(value, 'utf8')::integer AS number, recorded_at_ms
  FROM ff.journal WHERE kind = 'step' AND state = 'done'
"""
PROGRESS: Final = "SELECT count(*) FROM ff.journal"
GOING: Final = "SELECT count(*) FROM ff.exec_core WHERE lifecycle_phase <> 'terminal'"
RIGHT: Final = """
SELECT count(*) FROM ff.execution x
  JOIN ff.attempt a ON (a.partition_key, a.execution_id, a.attempt_index)
                     = (x.partition_key, x.execution_id, x.attempt_index)
 WHERE x.public_state = 'completed' AND convert_from(a.result, 'utf8') = $1
"""


class Size(msgspec.Struct, frozen=True):
    """How many executions of how many steps, and how often a worker is killed meanwhile."""

    executions: int
    steps: int
    kills: int
    seconds: float


QUICK: Final = Size(60, 20, kills=2, seconds=0.02)
FULL: Final = Size(1_000, 20, kills=10, seconds=0.02)


class Seen(msgspec.Struct, frozen=True):
    """What was counted when everything had ended."""

    right: int
    going: int
    told_twice: int
    kills: int
    runs: int
    after_record: int
    """Bodies that began after their step was recorded."""
    after_return: int
    """Bodies that began after a handler had got the result of their step."""
    unrecorded: int
    """Steps whose result a handler got, but which are not in the journal."""


async def _run(dsn: str, diary: Path, size: Size) -> Seen:
    db = await connect(DatabaseConfig(dsn=dsn), role="tests")
    client = await Client.connect(dsn)
    try:
        async with crew(dsn, db, diary, slots=SLOTS, ttl=TTL) as made:
            calls = [summed.call(size.steps, BESIDE, size.seconds) for _ in range(size.executions)]
            await client.submit_many(calls)
            for kill in range(size.kills):
                due = (kill + 1) / (size.kills + 1) * size.executions * size.steps

                async def reached(due: float = due) -> bool:
                    return await db.fetchval(PROGRESS) >= due

                await eventually(reached, within=120)
                await made.kill_one()

            async def ended() -> bool:
                return not await db.fetchval(GOING)

            await eventually(ended, within=120)
            return await _seen(db, diary, size, made.kills)
    finally:
        await client.close()
        await db.close()


async def _seen(db: Connection, diary: Path, size: Size, kills: int) -> Seen:
    lines = read_diary(diary)
    recorded = {
        (row["execution_id"], row["number"]): row["recorded_at_ms"]
        for row in await db.fetch(RECORDED)
    }
    returned: dict[tuple[str, int], int] = {}
    for execution, ends in lines["ended"].items():
        for line in ends:
            place = (execution, line.number)
            returned[place] = min(line.at_ms, returned.get(place, line.at_ms))
    counts: Counter[str] = Counter()
    for execution, runs in lines["ran"].items():
        for line in runs:
            place = (execution, line.number)
            counts["runs"] += 1
            counts["after_record"] += line.at_ms > recorded.get(place, line.at_ms)
            counts["after_return"] += line.at_ms > returned.get(place, line.at_ms)
    return Seen(
        right=await db.fetchval(RIGHT, str(sum(range(size.steps)))),
        going=await db.fetchval(GOING),
        told_twice=await told_twice(db),
        kills=kills,
        runs=counts["runs"],
        after_record=counts["after_record"],
        after_return=counts["after_return"],
        unrecorded=len(returned.keys() - recorded.keys()),
    )


def _figures(seen: Seen, size: Size) -> list[Figure]:
    steps = size.executions * size.steps
    most = steps + size.kills * SLOTS
    return [
        Figure(
            "G4",
            f"{size.executions:,} executions of {size.steps} steps, {seen.kills} kills: steps that"
            " ran again after they were recorded; after a handler had their result; not recorded",
            f"{seen.after_record}; {seen.after_return}; {seen.unrecorded}",
            "0; 0; 0",
            held=seen.kills == size.kills
            and not (seen.after_record or seen.after_return or seen.unrecorded),
        ),
        Figure(
            "G4",
            f"bodies run for {steps:,} steps",
            f"{seen.runs:,}",
            f"{steps:,} to {most:,} (one for each slot of a killed worker)",
            held=steps <= seen.runs <= most,
        ),
        Figure(
            "G4",
            "executions that ended with the sum of their steps; not ended; ended twice",
            f"{seen.right:,}; {seen.going}; {seen.told_twice}",
            f"{size.executions:,}; 0; 0",
            held=(seen.right, seen.going, seen.told_twice) == (size.executions, 0, 0),
        ),
    ]


def run(arena: Arena, size: Size) -> list[Figure]:
    with arena.database() as dsn, tempfile.TemporaryDirectory(prefix="chaos-steps-") as made:
        return _figures(asyncio.run(_run(dsn, Path(made) / "diary", size)), size)


CHAOS_STEPS: Final = Proof(
    "chaos_steps",
    lambda arena: run(arena, QUICK),
    lambda arena: run(arena, FULL),
    claims=("G4",),
)
