"""S9, S10: worker processes with nothing to do, and many that drain together."""

import argparse
import asyncio
import time
from typing import Final

import psutil
from asyncpg_fetch import fetchval
from common import Adapter, StalledError
from metering import Figures
from worker_process import WorkerProcess

CONCURRENCY: Final = 50
SETTLE: Final = 12.0
"""Seconds until what the workers did when they started has been counted: a session that is idle
reports its transactions after ten seconds."""

CONNECTIONS: Final = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend'
   AND pid <> pg_backend_pid()
"""

STATEMENTS_LIBRARY: Final = """
SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_stat_statements')
"""

STATEMENTS: Final = """
SELECT sum(calls)::bigint FROM pg_stat_statements
 WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
"""

TRANSACTIONS: Final = """
SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()
"""


async def idle(_: Adapter, options: argparse.Namespace) -> Figures:
    """S9: `workers` processes with all their sweeps and nothing to do."""
    counter = STATEMENTS if await fetchval(options.dsn, STATEMENTS_LIBRARY) else TRANSACTIONS
    workers = await WorkerProcess.start_many(options)
    for worker in workers:
        worker.go()
    await asyncio.sleep(SETTLE + options.workers / 4)
    processes = [psutil.Process(worker.process.pid) for worker in workers]
    began, cpu = time.monotonic(), sum(map(spent, processes))
    counted = await fetchval(options.dsn, counter)
    await asyncio.sleep(options.seconds)
    took = time.monotonic() - began
    counted = await fetchval(options.dsn, counter) - counted - 1  # without the first count itself
    cpu = sum(map(spent, processes)) - cpu
    for worker in workers:
        await worker.stop()
    return {
        "statements": counted / took,
        "cpu": 100 * cpu / took,
        "counts_statements": float(counter == STATEMENTS),
    }


async def fleet(adapter: Adapter, options: argparse.Namespace) -> Figures:
    """S10: `workers` processes drain `n` together; the warnings that they log are errors."""
    options.concurrency = options.concurrency or CONCURRENCY
    workers = await WorkerProcess.start_many(options)
    for worker in workers:
        worker.go()
    most = 0
    deadline = time.monotonic() + options.timeout
    while await adapter.unfinished(options.dsn):
        most = max(most, await fetchval(options.dsn, CONNECTIONS))
        if time.monotonic() > deadline:
            raise StalledError
        await asyncio.sleep(0.1)
    seen = [await worker.stop() for worker in workers]
    first = min(figures["first"] for figures in seen if figures["calls"])
    return await adapter.recorded(options, first) | {
        "connections": float(most),
        "workers": float(options.workers),
        "errors": float(sum(figures["errors"] for figures in seen)),
    }


def spent(process: psutil.Process) -> float:
    """Seconds of CPU that a process has used."""
    times = process.cpu_times()
    return times.user + times.system
