"""G12: every reader of a stream has every frame, once and in order, whatever is cut or slow."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Final

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.streams.append_frame import Append
from flowfabric.engine.streams.frame import Frame, NewFrame
from flowfabric.errors import TransportError
from flowfabric.states import FrameMode
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.proofs.stream_times import (
    Load,
    Times,
    beside_readers,
    beside_stalled,
    claimed_leases,
    measured,
)
from tests.worker.proxy import Proxy

POOL: Final = 4
EACH: Final = 12
"""Durable frames of one append; a best-effort frame comes with them. Pages end within appends."""
APART: Final = 0.5
"""Seconds between two cuts."""
APPENDED: Final = "SELECT coalesce(sum(frame_count), 0)::bigint FROM ff.stream_meta"
CONNECTIONS: Final = """
SELECT count(*) FROM pg_stat_activity
 WHERE application_name = 'flowfabric client' AND datname = current_database()
"""


async def _write(engine: Engine, lease: Lease, appends: int) -> tuple[float, int]:
    """Append numbered frames: the longest append in seconds, and how many got no answer.

    Those are repeated.
    """
    longest, repeated = 0.0, 0
    for number in range(appends):
        new = [
            NewFrame(payload=str(number * EACH + each).encode(), frame_type="n")
            for each in range(EACH)
        ]
        live = NewFrame(payload=b"live", mode=FrameMode.BEST_EFFORT, ttl=5)
        append = Append(lease=lease, frames=[*new, live])
        while True:
            began = time.monotonic()
            try:
                [answer] = await engine.append_frames([append])
            except TransportError:
                repeated += 1
                await asyncio.sleep(0.05)
                continue
            assert isinstance(answer, list), answer
            longest = max(longest, time.monotonic() - began)
            break
        await asyncio.sleep(0.01)
    return longest, repeated


async def _follow(engine: Engine, lease: Lease, pause: float) -> list[Frame]:
    read: list[Frame] = []
    async for frame in await engine.follow_stream(lease.execution_id):
        read.append(frame)
        if pause:
            await asyncio.sleep(pause)
    return read


async def _stream(dsn: str, *, writers: int, tailers: int, appends: int) -> list[Figure]:
    db = await connect(DatabaseConfig(dsn=dsn), role="tests")
    watching = await connect(DatabaseConfig(dsn=dsn), role="tests")
    try:
        async with Proxy.to(dsn) as proxy:
            engine = await Engine.connect(DatabaseConfig(dsn=proxy.dsn, pool_size=POOL))
            try:
                leases = await claimed_leases(db, writers)
                following = [
                    asyncio.create_task(
                        _follow(engine, leases[each % writers], 0.01 if each == 0 else 0)
                    )
                    for each in range(tailers - 1)
                ]
                cutting = asyncio.create_task(_cut(proxy, watching))
                written = await asyncio.gather(*(_write(engine, each, appends) for each in leases))
                cutting.cancel()
                await asyncio.wait((cutting,))
                proxy.mend()
                await complete(db, [Completion(each) for each in leases])
                late = _follow(engine, leases[0], 0)
                async with asyncio.timeout(60):
                    read = await asyncio.gather(*following, late)
                connections = await db.fetchval(CONNECTIONS)
            finally:
                await engine.close()
    finally:
        await watching.close()
        await db.close()
    longest, repeated = max(each for each, _ in written), sum(each for _, each in written)
    wanted = [str(number) for number in range(appends * EACH)]
    whole = sum(
        [each.text for each in frames if each.mode is FrameMode.DURABLE] == wanted
        for frames in read
    )
    ordered = sum(
        all(before.id < after.id for before, after in pairwise(frames)) for frames in read
    )
    crowd = f"{writers} writers, {tailers} readers, {POOL} connections for all, which are cut"
    return [
        Figure(
            "G12",
            f"{crowd}: readers that have each of {appends * EACH} frames once, and in order",
            f"{whole}, {ordered} of {tailers} ({repeated} appends repeated)",
            f"{tailers}, {tailers}",
            held=whole == ordered == tailers and repeated > 0,
        ),
        Figure(
            "G12",
            "longest append that was answered; connections of the pool",
            f"{longest:.1f} s; {connections}",
            f"at most 10 s; {POOL}",
            held=longest <= 10 and connections <= POOL,
        ),
    ]


async def _cut(proxy: Proxy, db: Connection) -> None:
    """Cut all lines again and again, each time as soon as an append is committed.

    Its answer is then lost.
    """
    while True:
        before, lost = await db.fetchval(APPENDED), asyncio.Event()

        async def appended(before: int = before, lost: asyncio.Event = lost) -> bool:
            if await db.fetchval(APPENDED) > before:
                lost.set()
            return lost.is_set()

        proxy.lose_answer(appended)
        await lost.wait()
        await asyncio.sleep(APART)


def quick(arena: Arena) -> list[Figure]:
    with arena.database() as dsn:
        cut = asyncio.run(_stream(dsn, writers=10, tailers=40, appends=25))
    load = Load(writers=4, readers=50, pause=0.05, appends=20, rounds=1)
    times = _measured(arena, load)
    return [
        *cut,
        beside_stalled(times, load, at_most=5, percent=50),
        beside_readers(times, load, at_most=10),
    ]


def full(arena: Arena) -> list[Figure]:
    with arena.database() as dsn:
        cut = asyncio.run(_stream(dsn, writers=50, tailers=200, appends=100))
    few = Load(writers=4, readers=50, pause=0.05, appends=60, rounds=5)
    many = Load(writers=50, readers=200, pause=0.5, appends=8, rounds=3)
    return [
        *cut,
        beside_stalled(_measured(arena, few), few, at_most=1.2),
        beside_readers(_measured(arena, many), many, at_most=2),
    ]


def _measured(arena: Arena, load: Load) -> Times:
    with arena.database() as dsn:
        return asyncio.run(measured(dsn, load))


STREAMS: Final = Proof("streams", quick, full, claims=("G12",))
