"""Postgres goes away while the flush of a step is under way: the worker repeats it, or gives up."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from flowfabric import Client
from flowfabric.db.migrate import migrate
from tests.proofs.chaos.server import Server
from tests.stories import mortal
from tests.stories.processes import workers
from tests.worker.facts import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SETTINGS: Mapping[str, Any] = {"module": "tests.stories.mortal", "forks": False, "concurrency": 2}
LONG, SHORT = 20.0, 2.0
BEFORE, AFTER = "before its commit", "after its commit"
STORIES = {
    "killed before the commit": (LONG, BEFORE, "crash", 0.5, {"bodies": 1, "attempts": 1}),
    "killed after the commit": (LONG, AFTER, "crash", 0.5, {"bodies": 1, "attempts": 1}),
    "restarted before the commit": (LONG, BEFORE, "restart", 0.5, {"bodies": 1, "attempts": 1}),
    "away for longer than the lease": (SHORT, BEFORE, "crash", 4.0, {"bodies": 2, "attempts": 1}),
}
"""TTL of the lease, when it happens, what happens, for how long, and what is seen afterwards."""

# A flush waits for our lock while its statement runs, not yet while it is prepared.
HOLD = """
CREATE TABLE public.side (number integer);
CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock(77); RETURN NULL; END $$;
CREATE TRIGGER hold BEFORE INSERT ON ff.journal EXECUTE FUNCTION public.hold()"""
BLOCKED = """
SELECT count(*) FROM pg_stat_activity
 WHERE wait_event_type = 'Lock' AND query LIKE '%journal.record_entries%'"""
SEEN = """
SELECT (SELECT count(*) FROM ff.journal j WHERE j.execution_id = e.execution_id) AS entries,
       e.total_attempt_count AS attempts FROM ff.execution e WHERE e.execution_id = $1"""
RECORDED = "SELECT EXISTS (SELECT FROM ff.journal WHERE execution_id = $1)"


async def played(server: Server, diary: Path, name: str) -> dict[str, Any]:
    """What is seen after the story of that name."""
    ttl, when, how, seconds, _ = STORIES[name]
    settings = {**SETTINGS, "lease_ttl": ttl, "diary": str(diary)}
    async with (
        await Client.connect(server.dsn) as client,
        workers(server.dsn, "w", quiet=True, **settings) as [worker],
    ):
        looks, ours = [await asyncpg.connect(server.dsn) for _ in range(2)]
        await ours.execute("SELECT pg_advisory_lock(77)")
        handle = await client.submit(mortal.paid.call())
        await eventually(lambda: is_there(looks, BLOCKED), within=30)
        await looks.execute("INSERT INTO public.side VALUES (1)")  # so that the claim is on disk
        if when == AFTER:
            worker.freeze()  # it does not read the answer
            await ours.execute("SELECT pg_advisory_unlock(77)")
            await eventually(lambda: is_there(looks, RECORDED, handle.execution_id.uuid))
        gone = asyncio.create_task(getattr(server, how)(seconds))
        await asyncio.sleep(0.1)
        os.kill(worker.pid, signal.SIGCONT)
        await gone
        for each in (looks, ours):
            each.terminate()
        result = await handle.result(timeout=40)
    bodies = (await asyncio.to_thread(diary.read_text)).count(" ran ")
    db = await asyncpg.connect(server.dsn)
    try:
        row = await db.fetchrow(SEEN, handle.execution_id.uuid)
    finally:
        await db.close()
    assert row is not None
    return {"result": result, "bodies": bodies, **dict(row)}


async def prepare(server: Server) -> None:
    db = await asyncpg.connect(server.dsn)
    await db.execute(HOLD)
    await db.close()


async def is_there(db: asyncpg.Connection[Any], sql: str, *args: object) -> bool:
    return bool(await db.fetchval(sql, *args))


async def test_a_step_whose_flush_meets_a_restart_of_postgres_is_recorded_once(
    tmp_path: Path,
) -> None:
    with Server.running() as server:
        await server.start()
        await migrate(server.dsn)
        await prepare(server)
        found = {
            name: await played(server, tmp_path / f"diary {number}", name)
            for number, name in enumerate(STORIES)
        }

    same = {"result": "paid", "entries": 1}
    assert found == {name: {**same, **story[4]} for name, story in STORIES.items()}
