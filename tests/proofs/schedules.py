"""Each instant of a schedule is fired once, by many processes, wherever some are killed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.schedules.definition import ScheduleDefinition
from flowfabric.schedules.spec import spec_of
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.worker.facts import eventually

PROCESSES: Final = 4
KILLED_AT: Final = (0.1, 0.4)
"""The parts that are fired when the first and the second process are killed."""
_AT_ONCE: Final = 1000

# All within one second, which has passed.
DUE: Final = """
UPDATE ff.schedule s SET next_fire_at_ms = d.at, anchor_ms = d.at
  FROM (SELECT name, ff.now_ms() - 1000 + row_number() OVER (ORDER BY name) % 1000 AS at
          FROM ff.schedule) AS d
 WHERE d.name = s.name
"""
FIRED: Final = "SELECT count(*) FROM ff.schedule_fire"
MISSED: Final = """
SELECT count(*) FROM ff.schedule s
 WHERE NOT EXISTS (SELECT FROM ff.schedule_fire f
                     JOIN ff.exec_core e ON (e.partition_key, e.execution_id)
                                          = (f.execution_partition, f.execution_id)
                    WHERE f.name = s.name AND f.outcome = 'fired'
                      AND e.tags->>'ff.schedule' = s.name)
"""
DOUBLED: Final = """
SELECT (SELECT count(*) FROM ff.exec_core) - (SELECT count(DISTINCT name) FROM ff.schedule_fire)
     + (SELECT count(*) - count(DISTINCT name) FROM ff.schedule_fire)
     + (SELECT count(*) FROM ff.schedule WHERE fired <> 1 OR revision <> 2)
"""


class Seen(msgspec.Struct, frozen=True):
    """What became of the schedules."""

    killed: int
    """Processes that were killed while schedules were still due."""
    missed: int
    doubled: int
    fired: int


async def _run(dsn: str, count: int, batch: int) -> Seen:
    engine = await Engine.connect(DatabaseConfig(dsn=dsn, pool_size=1), role="tests")
    db = await connect(DatabaseConfig(dsn=dsn), role="tests")
    processes = [await _start(dsn, batch) for _ in range(PROCESSES)]
    try:
        definitions = [_definition(number) for number in range(count)]
        for first in range(0, count, _AT_ONCE):
            await engine.create_schedules(definitions[first : first + _AT_ONCE])
        await db.execute(DUE)
        killed = await _fire(db, processes, count)
        return Seen(
            killed=killed,
            missed=await db.fetchval(MISSED),
            doubled=await db.fetchval(DOUBLED),
            fired=await db.fetchval(FIRED),
        )
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()
        await db.close()
        await engine.close()


async def _start(dsn: str, batch: int) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.proofs.firing",
        dsn,
        str(batch),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    await process.stdout.readline()
    return process


async def _fire(db: Connection, processes: Sequence[asyncio.subprocess.Process], count: int) -> int:
    """Let all processes fire, and kill two on the way; how many died with something left to do."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
    killed = 0
    for process, part in zip(processes, KILLED_AT, strict=False):

        async def far_enough(part: float = part) -> bool:
            return await db.fetchval(FIRED) >= part * count

        await eventually(far_enough, within=120)
        process.kill()
        killed += await db.fetchval(FIRED) < count
    for process in processes:
        await process.wait()
    return killed


def _definition(number: int) -> ScheduleDefinition:
    return ScheduleDefinition(
        name=f"schedule-{number}", spec=spec_of(every=86_400), execution_kind="job"
    )


def _figures(seen: Seen, count: int) -> list[Figure]:
    return [
        Figure(
            "G1, G7",
            f"{count:,} schedules due in one second, {PROCESSES} processes of which "
            f"{len(KILLED_AT)} are killed on the way: missed, doubled",
            f"{seen.missed}, {seen.doubled} ({seen.killed} killed, {seen.fired:,} fired)",
            "0, 0",
            held=(seen.missed, seen.doubled, seen.fired) == (0, 0, count)
            and seen.killed == len(KILLED_AT),
        )
    ]


def quick(arena: Arena) -> list[Figure]:
    with arena.database() as dsn:
        return _figures(asyncio.run(_run(dsn, 400, 10)), 400)


def full(arena: Arena) -> list[Figure]:
    with arena.database() as dsn:
        return _figures(asyncio.run(_run(dsn, 10_000, 500)), 10_000)


SCHEDULES: Final = Proof("schedules", quick, full, claims=("G1", "G7"))
