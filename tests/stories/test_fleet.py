"""The process that sweeps for a fleet is killed or frozen, and another one sweeps soon."""

import os
import signal
import time

import pytest

from flowfabric import Client
from flowfabric.db.rows import Connection
from flowfabric.reconcile.find_due import HELD_FOR
from flowfabric.reconcile.loop import STAND_BY_EVERY
from tests.stories.processes import WorkerProcess, all_completed, serving, workers
from tests.stories.shop import nap
from tests.worker.facts import count, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timing, pytest.mark.timeout(60)]

KILLED: float = STAND_BY_EVERY * 1.2 + 1.0
FROZEN: float = HELD_FOR + STAND_BY_EVERY * 1.2 + 1.0
"""Seconds within which another process sweeps: until its next look, and one for the machine."""

SWEPT_BY = "SELECT worker_instance_id FROM ff.sweeper WHERE NOT standby"
STANDBY = "SELECT worker_instance_id FROM ff.sweeper WHERE standby"


async def sweeping(db: Connection, running: list[WorkerProcess]) -> WorkerProcess:
    """The process that sweeps, once another one stands by with a session of its own."""

    async def both() -> bool:
        return await db.fetchval("SELECT count(session_pid) FROM ff.sweeper") == 2

    await eventually(both, within=20)
    swept_by = await db.fetchval(SWEPT_BY)
    return next(each for each in running if each.instance == swept_by)


async def test_a_fleet_whose_sweeper_is_killed_or_frozen_sweeps_again_within_seconds(
    ff_dsn: str, client: Client, db: Connection
) -> None:
    async with workers(ff_dsn, "first", "second", concurrency=2) as running:
        for done, (signalled, within) in enumerate(
            ((signal.SIGKILL, KILLED), (signal.SIGSTOP, FROZEN))
        ):
            if done:
                running.append(await WorkerProcess.start(ff_dsn, "third", concurrency=2))
            gone = await sweeping(db, running)
            next_in_line = await db.fetchval(STANDBY)
            await client.submit(nap.call(0), delay=0.1)
            os.kill(gone.pid, signalled)
            began = time.monotonic()

            async def promoted(expected: int = done + 1) -> bool:
                return await count(db, "completed") == expected

            await eventually(promoted, within=within + 5)

            assert time.monotonic() - began <= within, signalled.name
            assert await db.fetchval(SWEPT_BY) == next_in_line != gone.instance


async def test_a_fleet_that_loses_sweeper_and_standby_at_once_sweeps_again_as_soon(
    ff_dsn: str, client: Client, db: Connection
) -> None:
    async with workers(ff_dsn, "first", "second", "third", concurrency=2) as running:
        await serving(db, 3)
        swept_by = await sweeping(db, running)
        stands_by = await db.fetchval(STANDBY)
        await client.submit(nap.call(0), delay=0.1)
        began = time.monotonic()
        for gone in running:
            if gone.instance in (swept_by.instance, stands_by):
                gone.kill()

        await eventually(lambda: all_completed(db), within=KILLED + 5)

        assert time.monotonic() - began <= KILLED
