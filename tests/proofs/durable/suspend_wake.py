"""G10: no signal is lost and no suspension resumes twice, while workers die and calls race."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from flowfabric import Client
from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.ids import ExecutionId
from tests.proofs.arena import Arena
from tests.proofs.durable.crew import Crew, crew, read_diary
from tests.proofs.durable.meetings import Met, met
from tests.proofs.durable.shop import patient
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.worker.facts import count, eventually

SENDERS: Final = 16
SLOTS: Final = 32
TTL: Final = 2.0
PATIENCE: Final = 15.0
"""Seconds after the last end after which nothing more is expected."""

# A handler returns the number that its signal carried.
ENDED: Final = """
SELECT x.execution_id::text, convert_from(a.result, 'utf8')::integer AS number
  FROM ff.execution x
  JOIN ff.attempt a ON (a.partition_key, a.execution_id, a.attempt_index)
                     = (x.partition_key, x.execution_id, x.attempt_index)
 WHERE x.public_state = 'completed'
"""
RESUMES: Final = """
SELECT count(*) FROM (SELECT FROM ff.completion_event WHERE outcome = 'resumable'
                       GROUP BY execution_id HAVING count(*) > 1) AS twice
"""
GOING: Final = "SELECT count(*) FROM ff.exec_core WHERE lifecycle_phase <> 'terminal'"
MOVED: Final = "SELECT count(*) FROM ff.signal_event"


class Size(msgspec.Struct, frozen=True):
    """How many are suspended at once, how often a worker is killed, how many pairs are fired."""

    suspended: int
    kills: int
    pairs: int


QUICK: Final = Size(300, kills=1, pairs=300)
FULL: Final = Size(10_000, kills=5, pairs=10_000)


class Woken(msgspec.Struct, frozen=True):
    """What became of executions that were suspended at once and got one signal each."""

    suspended: int
    lost: int
    """Executions that did not end with the number of their signal."""
    resumed_twice: int
    wakes: int
    """Handlers that went on after the wait; more than once only if their worker was killed."""
    kills: int


async def _woken(dsn: str, diary: Path, size: Size) -> Woken:
    db = await connect(DatabaseConfig(dsn=dsn), role="tests")
    client = await Client.connect(dsn)
    engine = await Engine.connect(DatabaseConfig(dsn=dsn, pool_size=SENDERS), role="tests")
    try:
        async with crew(dsn, db, diary, slots=SLOTS, ttl=TTL) as made:
            handles = await client.submit_many([patient.call() for _ in range(size.suspended)])

            async def all_wait() -> bool:
                return await count(db, "suspended") == size.suspended

            await eventually(all_wait, within=180)
            sent = [(each.execution_id, number) for number, each in enumerate(handles)]
            killing = asyncio.create_task(_kill(db, made, size))
            await asyncio.gather(*(_send(engine, sent[n::SENDERS]) for n in range(SENDERS)))
            await killing

            await _until_idle(db)
            results = {row["execution_id"]: row["number"] for row in await db.fetch(ENDED)}
            woke = read_diary(diary)["woke"]
            return Woken(
                suspended=size.suspended,
                lost=sum(results.get(str(each.uuid)) != number for each, number in sent),
                resumed_twice=await db.fetchval(RESUMES),
                wakes=sum(map(len, woke.values())),
                kills=made.kills,
            )
    finally:
        await engine.close()
        await client.close()
        await db.close()


async def _until_idle(db: Connection) -> None:
    """Everything has ended, or nothing has for a while: what is left is lost."""
    left, since = -1, time.monotonic()
    while going := await db.fetchval(GOING):
        if going != left:
            left, since = going, time.monotonic()
        elif time.monotonic() - since > PATIENCE:
            return
        await asyncio.sleep(0.05)


async def _send(engine: Engine, signals: Sequence[tuple[ExecutionId, int]]) -> None:
    for execution_id, number in signals:
        payload = msgspec.json.encode(number)
        signal = NewSignal(
            execution_id=execution_id, signal_name="go", payload=payload, encoding="json"
        )
        await engine.send_signal(signal)


async def _kill(db: Connection, made: Crew, size: Size) -> None:
    """Kill workers while signals arrive and handlers wake."""
    for kill in range(size.kills):
        due = (kill + 1) / (size.kills + 1) * size.suspended

        async def reached(due: float = due) -> bool:
            return await db.fetchval(MOVED) >= due

        await eventually(reached, within=120)
        await made.kill_one()


def _figures(woken: Woken, pairs: Met) -> list[Figure]:
    most = woken.suspended + woken.kills * SLOTS
    return [
        Figure(
            "G10",
            f"{woken.suspended:,} suspended at once, one signal each from {SENDERS} senders,"
            f" {woken.kills} kills: lost; resumed twice",
            f"{woken.lost}; {woken.resumed_twice}",
            "0; 0",
            held=woken.kills > 0 and not (woken.lost or woken.resumed_twice),
        ),
        Figure(
            "G10",
            "handlers that went on after their signal",
            f"{woken.wakes:,}",
            f"{woken.suspended:,} to {most:,} (one for each slot of a killed worker)",
            held=woken.suspended <= woken.wakes <= most,
        ),
        Figure(
            "G10",
            f"{pairs.pairs:,} suspensions and two signals each within 5 ms: hangs; resumed twice;"
            " resumed wrongly; signals lost",
            f"{pairs.hangs}; {pairs.double_resumes}; {pairs.not_resumed}; {pairs.lost}"
            f" ({pairs.suspended:,} were suspended first)"
            + "".join(f"; {each}" for each in pairs.errors[:3]),
            "0; 0; 0; 0",
            held=0 < pairs.suspended < pairs.pairs
            and not (pairs.hangs or pairs.double_resumes or pairs.not_resumed or pairs.lost)
            and not pairs.errors,
        ),
    ]


def run(arena: Arena, size: Size) -> list[Figure]:
    with arena.database() as dsn, tempfile.TemporaryDirectory(prefix="suspend-wake-") as made:
        woken = asyncio.run(_woken(dsn, Path(made) / "diary", size))
    with arena.database() as dsn:
        pairs = asyncio.run(met(dsn, arena.chance("suspend_wake"), size.pairs))
    return _figures(woken, pairs)


SUSPEND_WAKE: Final = Proof(
    "suspend_wake",
    lambda arena: run(arena, QUICK),
    lambda arena: run(arena, FULL),
    claims=("G10",),
)
