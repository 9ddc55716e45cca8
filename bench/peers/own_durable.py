"""D3, D5, D6 alone, D7: durable handlers on an idle system, and many that sleep."""

import argparse
import asyncio
import time
from statistics import median
from typing import Any, Final

import asyncpg
from asyncpg_fetch import fetchval
from common import Adapter, StalledError
from flowfabric_app import ENTRIES, NAMESPACE, SLEEP, STEPS_ALONE, application
from metering import Figures, Meter, milliseconds, percentile, rate
from worker_process import WorkerProcess

from flowfabric import Client

PAUSE: Final = 0.1

SUSPENDED: Final = "SELECT count(*) FROM ff.exec_core WHERE lifecycle_phase = 'suspended'"

PARKED: Final = """
SELECT count(*), (max(recorded_at_ms) - min(started_at_ms)) / 1000.0::float8 AS seconds
  FROM ff.journal WHERE kind = 'sleep'
"""
LATE: Final = """
SELECT (e.terminal_at_ms - j.due_at_ms)::float8
  FROM ff.journal j JOIN ff.exec_core e USING (partition_key, execution_id)
 WHERE j.kind = 'sleep' ORDER BY 1
"""


async def steps_alone(adapter: Adapter, options: argparse.Namespace) -> Figures:
    """D3: executions of many steps, one at a time, on a system that has nothing else to do."""
    options.shape = "row"
    task = application(Meter(0)).row
    client = await Client.connect(options.dsn, namespace=NAMESPACE)
    seen: list[tuple[float, int]] = []
    try:
        async with adapter.idle_worker(options) as worker:
            await (await client.submit(task.call(10))).result(timeout=options.timeout)
            for _ in range(options.repeats):
                await asyncio.sleep(PAUSE)
                handle = await client.submit(task.call(STEPS_ALONE))
                seen.append(await handle.result(timeout=options.timeout))
            await worker.stop()
    finally:
        await client.close()
    return {
        "step": 1000 * median(seconds for seconds, _ in seen) / STEPS_ALONE,
        "statements": min(statements for _, statements in seen) / STEPS_ALONE,
    }


async def sleeps(adapter: Adapter, options: argparse.Namespace) -> Figures:
    """D5: `n` handlers that sleep: how fast they fall asleep, and how late each ends."""
    task = application(Meter(0)).sleeper
    client = await Client.connect(options.dsn, namespace=NAMESPACE)
    try:
        await client.submit_many([task.call() for _ in range(options.n)])
    finally:
        await client.close()
    worker = await WorkerProcess.start(options)
    worker.go()
    try:
        await adapter.until_finished(options)
    except StalledError:
        worker.kill()
        raise
    await worker.stop()
    conn = await asyncpg.connect(options.dsn)
    try:
        parked = await conn.fetchrow(PARKED)
        late = [row[0] for row in await conn.fetch(LATE)]
    finally:
        await conn.close()
    assert parked is not None
    if parked[0] != options.n:
        raise RuntimeError(f"{parked[0]} of {options.n} handlers slept")
    return rate(options.n, parked[1]) | {
        "p50": percentile(late, 50),
        "p99": percentile(late, 99),
        "sleep": SLEEP,
    }


async def signal_alone(adapter: Adapter, options: argparse.Namespace) -> Figures:
    """D6: one handler that waits again and again; each signal carries when it was sent."""
    task = application(Meter(0)).listener
    seen = await _signalled(adapter, options, task.call(options.repeats))
    return milliseconds(seen["delays"])


async def long_wake(adapter: Adapter, options: argparse.Namespace) -> Figures:
    """D7: a handler with many entries wakes, replays them and comes to a new step."""
    options.shape = "long"
    task = application(Meter(0)).long
    seen = await _signalled(adapter, options, task.call(options.repeats))
    claimed = sorted(1000 * each for each in seen["since_claim"])
    return milliseconds(seen["delays"]) | {
        "claimed": percentile(claimed, 50),
        "reads": seen["reads"] / options.repeats,
        "entries": float(ENTRIES),
    }


async def _signalled(adapter: Adapter, options: argparse.Namespace, call: Any) -> dict[str, Any]:
    """Signal one handler whenever it is suspended; what its worker has seen."""
    client = await Client.connect(options.dsn, namespace=NAMESPACE)
    try:
        async with adapter.idle_worker(options) as worker:
            handle = await client.submit(call)
            for _ in range(options.repeats):
                deadline = time.monotonic() + options.timeout
                while not await fetchval(options.dsn, SUSPENDED):
                    if time.monotonic() > deadline:
                        raise StalledError
                    await asyncio.sleep(0.01)
                await asyncio.sleep(PAUSE)
                await handle.signal("ping", time.monotonic())
            await handle.result(timeout=options.timeout)
            return await worker.stop()
    finally:
        await client.close()
