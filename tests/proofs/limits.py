"""Limits are never passed, whatever is killed, and nothing is held back for ever."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from flowfabric import Client
from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.limited_worker import CAPS, RATE, beside, cap_1, cap_2, cap_10, idle, rate
from tests.proofs.proof import Proof

_AT_ONCE: Final = 1000
_TASKS: Final = {1: cap_1, 2: cap_2, 10: cap_10}

# Every insert of a lease looks at the leases of its key, of its own and of committed transactions.
# Where the lock of the key is missing, two that are committed together are seen by the next look.
WATCH: Final = """
CREATE TABLE public.passed (limit_name text, n bigint);
CREATE FUNCTION public.watch_leases() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.passed
    SELECT p.name, held.n
      FROM (SELECT l.quota_key_id, count(*) AS n FROM ff.lease l
             WHERE l.quota_key_id = NEW.quota_key_id GROUP BY 1) AS held
      JOIN ff.quota_key q USING (quota_key_id) JOIN ff.quota_policy p USING (quota_policy_id)
     WHERE p.active_concurrency_cap BETWEEN 1 AND held.n - 1;
    RETURN NULL;
END $$;
CREATE TRIGGER watch AFTER INSERT ON ff.lease FOR EACH ROW
    WHEN (NEW.quota_key_id IS NOT NULL) EXECUTE FUNCTION public.watch_leases();
"""
LOOK: Final = """
SELECT count(*) FROM (
    SELECT FROM ff.lease l JOIN ff.quota_key q USING (quota_key_id)
      JOIN ff.quota_policy p USING (quota_policy_id)
     WHERE p.active_concurrency_cap > 0
     GROUP BY l.quota_key_id, p.active_concurrency_cap
    HAVING count(*) > p.active_concurrency_cap) AS passed
"""
PASSED: Final = "SELECT count(*) FROM public.passed"
# Whatever no worker knows does not end, and holds back nobody.
LEFT: Final = """
SELECT count(*) FROM ff.exec_core e JOIN ff.route r USING (route_id)
 WHERE e.lifecycle_phase <> 'terminal' AND r.execution_kind <> 'idle'
"""
# Claims of one key follow one another under its lock, so the ids of their events ascend.
OVERTAKEN: Final = """
SELECT count(*) FROM (
    SELECT row_number() OVER (PARTITION BY e.quota_key_id ORDER BY first.event_id) AS began,
           row_number() OVER (PARTITION BY e.quota_key_id
                              ORDER BY e.created_at_ms, e.execution_id) AS came
      FROM ff.exec_core e JOIN ff.route r USING (route_id)
      JOIN (SELECT execution_id, min(event_id) AS event_id FROM ff.lease_event
             WHERE event_type = 'acquired' GROUP BY 1) AS first USING (execution_id)
     WHERE r.execution_kind = 'cap-1') AS place
 WHERE began <> came
"""
# Each lease of an attempt begins and ends with an event. A begin gets its number under the lock of
# the key, after the ends that made room for it were committed: what is summed up was leased. The
# instants of attempts cannot say it, because a claim reads the clock before it waits for the key.
RAN_TOGETHER: Final = """
SELECT count(*) FROM (
    SELECT p.active_concurrency_cap AS cap,
           sum(CASE WHEN v.event_type IN ('acquired', 'reclaimed') THEN 1 ELSE -1 END)
               OVER (PARTITION BY e.quota_key_id ORDER BY v.event_id) AS n
      FROM ff.lease_event v JOIN ff.exec_core e USING (partition_key, execution_id)
      JOIN ff.quota_key q USING (quota_key_id) JOIN ff.quota_policy p USING (quota_policy_id)
     WHERE v.event_type <> 'renewed' AND p.active_concurrency_cap > 0) AS ran
 WHERE n > cap
"""
TOO_FAST: Final = """
SELECT count(*) FROM ff.quota_window a
 WHERE (SELECT count(*) FROM ff.quota_window b
         WHERE b.quota_key_id = a.quota_key_id
           AND b.admitted_at_ms >= a.admitted_at_ms
           AND b.admitted_at_ms < a.admitted_at_ms + $2) > $1
"""
# The questions above read whole tables: the settings of a connection of the engine are against it.
AS_POSTGRES_LIKES: Final = """
SET enable_seqscan = on; SET enable_hashjoin = on; SET enable_mergejoin = on;
SET statement_timeout = 0; ANALYZE
"""


class Seen(msgspec.Struct, frozen=True):
    """What became of the executions."""

    passed: int
    """Sightings of more leases of a key than its cap."""
    by_ledger: int
    """The same, found afterwards in the ledger: every begin and end of a lease in its order."""
    overtaken: int
    too_fast: int
    left: int
    killed: int


async def _start(dsn: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.proofs.limited_worker", dsn, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    return process


async def _submit(dsn: str, each: int, keys: int) -> int:
    """Each key has some that no worker knows, older than all others; how many the workers know."""
    unknown: list[Any] = [idle.call(f"k-{number}") for number in range(keys) for _ in range(3)]
    calls: list[Any] = [
        task.call(f"k-{number % keys}") for task in _TASKS.values() for number in range(each)
    ]
    calls += [beside.call(f"k-{number % keys}") for number in range(each // 4)]
    async with await Client.connect(dsn) as client:
        for some in (unknown, calls):
            for first in range(0, len(some), _AT_ONCE):
                await client.submit_many(some[first : first + _AT_ONCE])
    return len(calls)


async def _arrive(dsn: str) -> None:
    """Twice as many as the rate admits, in every part of its window: they see it half full."""
    async with await Client.connect(dsn) as client:
        for _ in range(20):
            await client.submit_many([rate.call() for _ in range(RATE.count // 2)])
            await asyncio.sleep(RATE.window_ms / 4000)


async def _run(dsn: str, each: int, keys: int, kills: int, within: float) -> Seen:
    db = await connect(DatabaseConfig(dsn=dsn), role="tests")
    workers = list[asyncio.subprocess.Process]()
    passed = killed = 0
    try:
        await db.execute(WATCH)
        workers += await asyncio.gather(_start(dsn), _start(dsn))
        total, _ = await asyncio.gather(_submit(dsn, each, keys), _arrive(dsn))
        marks = [total * (kills - n) // (kills + 1) for n in range(kills)]
        ends = asyncio.get_running_loop().time() + within
        while (left := await db.fetchval(LEFT)) and asyncio.get_running_loop().time() < ends:
            passed += await db.fetchval(LOOK)
            if marks and left <= marks[0]:
                marks.pop(0)
                victim = workers.pop(0)
                victim.kill()
                await victim.wait()
                killed += 1
                workers.append(await _start(dsn))
            await asyncio.sleep(0.002)
        return await _seen(db, passed, killed)
    finally:
        for worker in workers:
            worker.kill()
            await worker.wait()
        await db.close()


async def _seen(db: Connection, passed: int, killed: int) -> Seen:
    await db.execute(AS_POSTGRES_LIKES)
    return Seen(
        passed=passed + await db.fetchval(PASSED),
        by_ledger=await db.fetchval(RAN_TOGETHER),
        overtaken=await db.fetchval(OVERTAKEN),
        too_fast=await db.fetchval(TOO_FAST, RATE.count, RATE.window_ms),
        left=await db.fetchval(LEFT),
        killed=killed,
    )


def _figures(seen: Seen, each: int, keys: int) -> Sequence[Figure]:
    number = len(CAPS) * each + each // 4
    what = f"{number:,} executions of {keys} keys with caps of {CAPS}, one shared by three routes"
    return [
        Figure(
            "G14",
            f"{what}, {seen.killed} workers killed: caps passed as seen, and by the ledger"
            " of leases, windows passed, still held back",
            f"{seen.passed}, {seen.by_ledger}, {seen.too_fast}, {seen.left}",
            "0, 0, 0, 0",
            held=(seen.passed, seen.by_ledger, seen.too_fast, seen.left) == (0, 0, 0, 0),
        ),
        Figure(
            "G14",
            "with a cap of 1, executions that began before an older one of their key",
            str(seen.overtaken),
            "0",
            held=seen.overtaken == 0,
        ),
    ]


def quick(arena: Arena) -> Sequence[Figure]:
    with arena.database() as dsn:
        return _figures(asyncio.run(_run(dsn, 200, 20, 1, 90)), 200, 20)


def full(arena: Arena) -> Sequence[Figure]:
    with arena.database() as dsn:
        return _figures(asyncio.run(_run(dsn, 33_334, 1000, 10, 1800)), 33_334, 1000)


LIMITS: Final = Proof("limits", quick, full, claims=("G14",))
