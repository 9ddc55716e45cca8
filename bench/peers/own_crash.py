"""S6: two workers, one of them killed half-way."""

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from asyncpg_fetch import fetchval
from common import Adapter, StalledError
from flowfabric_app import NAMESPACE, application
from metering import Figures, Meter
from worker_process import WorkerProcess

from flowfabric import Client

CONCURRENCY: Final = 10

COMPLETED: Final = "SELECT count(*) FROM ff.completion_event WHERE outcome = 'success'"

COMPLETED_TWICE: Final = """
SELECT count(*) FROM (
    SELECT FROM ff.completion_event GROUP BY partition_key, execution_id HAVING count(*) > 1
) AS twice
"""


class Run(NamedTuple):
    """Seconds from the start of the workers, and from the kill; runs by execution."""

    seconds: float
    after_kill: float
    times: Counter[str]


async def crash(adapter: Adapter, options: argparse.Namespace) -> Figures:
    """S6: `n` of 50 ms each on two workers, undisturbed and then with one killed half-way."""
    healthy = await _slow_run(adapter, options, 0, kill=False)
    crashed = await _slow_run(adapter, options, options.n, kill=True)
    lost = 2 * options.n - await fetchval(options.dsn, COMPLETED)
    figures = {
        "lost": float(lost),
        "completed_twice": float(await fetchval(options.dsn, COMPLETED_TWICE)),
        "run_twice": float(sum(1 for times in crashed.times.values() if times > 1)),
    }
    if lost:
        return figures
    return figures | {
        "healthy": healthy.seconds,
        "crashed": crashed.seconds,
        "beyond": crashed.seconds - healthy.seconds,
        "after_kill": crashed.after_kill,
    }


async def _slow_run(
    adapter: Adapter, options: argparse.Namespace, before: int, *, kill: bool
) -> Run:
    task = application(Meter(0)).slow
    async with await Client.connect(options.dsn, namespace=NAMESPACE) as client:
        await client.submit_many([task.call(i=i) for i in range(options.n)])
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        options.concurrency, options.workers = CONCURRENCY, 2
        extra = ("--runs", str(runs), "--lease-ttl", str(options.lease_ttl))
        workers = await WorkerProcess.start_many(options, *extra)
        for worker in workers:
            worker.go()
        began = killed = time.time()
        with contextlib.suppress(StalledError):
            if kill:
                await _until_completed(options, before + options.n // 2)
                workers.pop().kill()
                killed = time.time()
            await adapter.until_finished(options)
        for worker in workers:
            await worker.stop()
        total = min(before + options.n, await fetchval(options.dsn, COMPLETED))
        ended = await adapter.completed_at(options.dsn, total)
        assert ended is not None
        return Run(ended - began, ended - killed, Counter(runs.read_text().split()))


async def _until_completed(options: argparse.Namespace, n: int) -> None:
    deadline = time.monotonic() + options.timeout
    while await fetchval(options.dsn, COMPLETED) < n:
        if time.monotonic() > deadline:
            raise StalledError
        await asyncio.sleep(0.02)
