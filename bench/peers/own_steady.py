"""The steady load: submits at a constant rate while one worker runs and ended executions go."""

import argparse
import asyncio
import json
import time
from typing import Any, Final

import asyncpg
from asyncpg_fetch import fetchval
from common import Adapter
from flowfabric_app import NAMESPACE, application, connected
from metering import Figures, Meter, arguments, milliseconds

from flowfabric import Client

TICK: Final = 0.005
DRAIN_SECONDS: Final = 60.0

SIZES: Final = """
SELECT sum(pg_table_size(c.oid))::float8 / 1e6 AS tables,
       sum(pg_indexes_size(c.oid))::float8 / 1e6 AS indexes,
       (SELECT count(*) FROM ff.exec_core)::float8 AS executions
  FROM pg_class c WHERE c.relnamespace = 'ff'::regnamespace AND c.relkind = 'r'
"""


async def steady(adapter: Adapter, options: argparse.Namespace) -> Figures:
    """Submit `rate` a second for `seconds`; prints one line of JSON per window of `window` seconds.

    The delays of submits and starts belong to the window in which the submit call was made.
    """
    async with connected(options.dsn) as engine:
        await engine.register_lanes([options.lane], registered_by="bench")
        await engine.set_lane_retention(options.lane, options.retention)
    took: dict[int, list[float]] = {}
    sizes: dict[int, dict[str, float]] = {}
    async with adapter.idle_worker(options) as worker:
        async with await Client.connect(options.dsn, namespace=NAMESPACE) as client:
            first = int(time.monotonic() // options.window) + 1
            last = first + int(options.seconds / options.window)
            await asyncio.sleep(first * options.window - time.monotonic())
            watching = asyncio.create_task(_watch(options, first, last, sizes))
            await _submit(client, options, last * options.window, took)
            await watching
        submitted = sum(map(len, took.values()))
        options.timeout = DRAIN_SECONDS
        await adapter.until_finished(options)
    started = (await worker.stop())["windows"]
    for number in range(first, last):
        window: dict[str, Any] = {
            "second": (number - first + 1) * options.window,
            "rate": len(took.get(number, [])) / options.window,
            "submit": milliseconds(took[number]) if number in took else None,
            "start": started.get(str(number)),
            "sizes": sizes.get(number),
        }
        print(json.dumps(window), flush=True)
    return {"rate": submitted / options.seconds, "left": float(await _left(options))}


async def _submit(
    client: Client, options: argparse.Namespace, until: float, took: dict[int, list[float]]
) -> None:
    """Calls at a constant rate, on time even when the answers are late."""
    task = application(Meter(0)).noop
    calls: set[asyncio.Task[None]] = set()

    async def submit(i: int, at: float) -> None:
        await client.submit(task.call(**arguments(i, at)))
        took.setdefault(int(at // options.window), []).append(time.monotonic() - at)

    began, made = time.monotonic(), 0
    while (now := time.monotonic()) < until:
        due = int((now - began) * options.rate)
        for i in range(made, due):
            call = asyncio.create_task(submit(i, time.monotonic()))
            calls.add(call)
            call.add_done_callback(calls.discard)
        made = max(made, due)
        await asyncio.sleep(TICK)
    await asyncio.gather(*calls)


async def _watch(
    options: argparse.Namespace, first: int, last: int, sizes: dict[int, dict[str, float]]
) -> None:
    """The sizes of tables and indexes at the end of each window."""
    conn = await asyncpg.connect(options.dsn)
    for number in range(first, last):
        await asyncio.sleep(max(0.0, (number + 1) * options.window - time.monotonic()))
        row = await conn.fetchrow(SIZES)
        assert row is not None
        sizes[number] = dict(row)
    await conn.close()


async def _left(options: argparse.Namespace) -> int:
    return await fetchval(options.dsn, "SELECT count(*) FROM ff.exec_core")
