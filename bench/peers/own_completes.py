"""`completes`: one execution a call on 16 connections, with and without a client that waits."""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from asyncpg_fetch import fetchval
from common import Adapter, StalledError
from engine_calls import claimed, created
from flowfabric_app import NAMESPACE, application, connected
from metering import Figures, Meter, arguments
from worker_process import WorkerProcess

from flowfabric import Client, Engine
from flowfabric.engine.lifecycle.complete import Completion

WRITERS: Final = 16
WAITED_FOR: Final = 600.0

WAITING: Final = "SELECT EXISTS (SELECT FROM ff.waiter)"


async def completes(_: Adapter, options: argparse.Namespace) -> Figures:
    """Rounds of `n` completes, one execution a call, in turns while nobody and a client waits."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    async with connected(options.dsn, connections=WRITERS) as engine:
        await _round(engine, options.n // 2)  # to warm up
        for number in range(2 * options.repeats):
            waited = number % 4 in (1, 2)
            client = await _waiting_client(options) if waited else None
            rates[waited].append(await _round(engine, options.n))
            if client is not None:
                await client.stop()
                await _until_waiting(options, wanted=False)
    alone, waited_rate = (statistics.median(rates[waited]) for waited in (False, True))
    return {"rate": alone, "waited_rate": waited_rate, "waited": waited_rate / alone}


async def wait(_: Adapter, options: argparse.Namespace) -> Figures:
    """The body of the process that waits for a result that does not come, until `stop`."""
    async with await Client.connect(options.dsn, namespace=NAMESPACE) as client:
        call = application(Meter(0)).noop.call(**arguments(0))
        handle = await client.submit(call, delay=WAITED_FOR)
        waiting = asyncio.create_task(handle.result(timeout=WAITED_FOR))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)  # go
        await asyncio.to_thread(sys.stdin.readline)  # stop
        waiting.cancel()
        await asyncio.wait([waiting])
    return {}


async def _waiting_client(options: argparse.Namespace) -> WorkerProcess:
    """A client in a process of its own that waits for a result."""
    client = await WorkerProcess.start(options, command="wait")
    client.go()
    await _until_waiting(options, wanted=True)
    return client


async def _until_waiting(options: argparse.Namespace, *, wanted: bool) -> None:
    """Wait until a client is registered to be notified, or none is any more."""
    deadline = time.monotonic() + options.timeout
    while await fetchval(options.dsn, WAITING) is not wanted:
        if time.monotonic() > deadline:
            raise StalledError
        await asyncio.sleep(0.02)


async def _round(engine: Engine, n: int) -> float:
    """Completions a second, by writers that take the leases in turns."""
    await created(engine, n)
    leases = [task.lease for task in await claimed(engine, n)]

    async def write(mine: Sequence[Any]) -> None:
        for lease in mine:
            await engine.complete([Completion(lease)])

    began = time.perf_counter()
    await asyncio.gather(*(write(leases[number::WRITERS]) for number in range(WRITERS)))
    return len(leases) / (time.perf_counter() - began)
