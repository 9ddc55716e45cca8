"""FlowFabric by its public API, with uvloop; and the scenarios that no peer runs."""

import argparse
import asyncio
import contextlib
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import psutil
import uvloop
from asyncpg_fetch import fetchval
from common import (
    LENGTH,
    WIDTH,
    Adapter,
    Figures,
    Meter,
    StalledError,
    Submit,
    arguments,
    main,
    percentile,
)
from worker_process import WorkerProcess

from flowfabric import App, Client
from flowfabric.app.flow import Flow
from flowfabric.config import DatabaseConfig
from flowfabric.db.migrate import migrate

NAMESPACE = "bench"
CONCURRENCY = 400
BULK = 10_000
LEASE_TTL = 30.0
CRASH_LEASE_TTL = 5.0
CRASH_CONCURRENCY = 10
CRASH_SECONDS = 0.05
FLEET_PROCESSES = 4
CONNECTIONS_EACH = (
    DatabaseConfig(dsn="postgresql:///bench").pool_size + 2
)  # beside the pool: renewer, listener
FLEET_CONCURRENCY = 50
WARM_UP = 5

UNFINISHED = """
SELECT EXISTS (SELECT FROM ff.exec_core WHERE eligibility_state = 'eligible_now')
    OR EXISTS (SELECT FROM ff.exec_core WHERE lifecycle_phase = 'active')
    OR EXISTS (SELECT FROM ff.exec_core WHERE delay_until_ms IS NOT NULL)
"""

COMPLETED_AT = """
SELECT occurred_at_ms / 1000.0::float8 FROM ff.completion_event
 WHERE outcome = 'success' ORDER BY occurred_at_ms OFFSET $1 - 1 LIMIT 1
"""

FLOWS_UNFINISHED = "SELECT EXISTS (SELECT FROM ff.exec_core WHERE lifecycle_phase <> 'terminal')"

FLOW_TIMES = """
SELECT f.created_at_ms / 1000.0::float8, max(e.occurred_at_ms) / 1000.0::float8
  FROM ff.flow_core f JOIN ff.completion_event e USING (partition_key, flow_id)
 WHERE e.outcome = 'success'
 GROUP BY f.partition_key, f.flow_id HAVING count(*) = f.node_count
 ORDER BY f.created_at_ms
"""

COMPLETED = "SELECT count(*) FROM ff.completion_event WHERE outcome = 'success'"

COMPLETED_TWICE = """
SELECT count(*) FROM (
    SELECT FROM ff.completion_event GROUP BY partition_key, execution_id HAVING count(*) > 1
) AS twice
"""

CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend'
   AND pid <> pg_backend_pid()
"""

STATEMENTS_LIBRARY = """
SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_stat_statements')
"""

STATEMENTS = """
SELECT sum(calls)::bigint FROM pg_stat_statements
 WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
"""

TRANSACTIONS = """
SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()
"""


class FlowFabricAdapter(Adapter):
    """Executions stay in `ff.exec_core`; each one that ends writes a completion event."""

    def add_options(self, parse: argparse.ArgumentParser) -> None:
        parse.add_argument("--runs", default="", help="file that every crash handler appends to")
        parse.add_argument("--lane", default="default")
        parse.add_argument("--lease-ttl", type=float, default=LEASE_TTL)
        parse.add_argument("--instances", type=int, default=1, help="workers in one process")
        parse.add_argument("--cancels", type=int, default=20, help="flows to cancel")
        parse.add_argument("--connections", type=int, default=100, help="of the whole fleet")

    async def setup(self, dsn: str) -> None:
        await migrate(dsn)

    async def fill(self, dsn: str, n: int) -> None:
        await self.bulk(dsn, n)

    async def submit(self, dsn: str, run: Callable[[Submit], Awaitable[float]]) -> float:
        task = application(Meter(0)).noop
        client = await Client.connect(dsn, namespace=NAMESPACE)

        async def submit(i: int, at: float) -> object:
            return await client.submit(task.call(**arguments(i, at)))

        try:
            return await run(submit)
        finally:
            await client.close()

    async def bulk(self, dsn: str, n: int) -> float:
        task = application(Meter(0)).noop
        client = await Client.connect(dsn, namespace=NAMESPACE)
        try:
            began = time.perf_counter()
            for start in range(0, n, BULK):
                numbers = range(start, min(start + BULK, n))
                await client.submit_many([task.call(**arguments(i)) for i in numbers])
            return time.perf_counter() - began
        finally:
            await client.close()

    async def start_flows(
        self, dsn: str, shape: str, run: Callable[[Submit], Awaitable[float]]
    ) -> float:
        bench = application(Meter(0))
        client = await Client.connect(dsn, namespace=NAMESPACE)

        async def start(i: int, at: float) -> object:
            return await client.start(fan(bench, WIDTH) if shape == "fan" else chain(bench, LENGTH))

        try:
            return await run(start)
        finally:
            await client.close()

    async def work(self, options: argparse.Namespace, meter: Meter, stop: asyncio.Event) -> None:
        logging.getLogger("flowfabric").addHandler(WarningCounter(meter))
        app = application(meter, options.runs).app
        workers = [
            app.worker(
                dsn=options.dsn,
                lanes=[options.lane],
                concurrency=options.concurrency or CONCURRENCY,
                lease_ttl=options.lease_ttl,
            )
            for _ in range(options.instances)
        ]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        await stop.wait()
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)

    async def unfinished(self, dsn: str) -> bool:
        return bool(await fetchval(dsn, UNFINISHED))

    async def completed_at(self, dsn: str, n: int) -> float | None:
        return await fetchval(dsn, COMPLETED_AT, n)

    async def flows_unfinished(self, dsn: str) -> bool:
        return bool(await fetchval(dsn, FLOWS_UNFINISHED))

    async def flow_times(self, dsn: str) -> list[tuple[float, float]]:
        conn = await asyncpg.connect(dsn)
        try:
            return [(row[0], row[1]) for row in await conn.fetch(FLOW_TIMES)]
        finally:
            await conn.close()

    # Scenarios that only FlowFabric runs

    async def run_submit_flow(self, options: argparse.Namespace) -> Figures:
        """S5: one flow of `n` members, a fan, started in one call."""
        flow = fan(application(Meter(0)), options.n - 2)
        async with await Client.connect(options.dsn, namespace=NAMESPACE) as client:
            began = time.perf_counter()
            await client.start(flow)
            return {"seconds": time.perf_counter() - began}

    async def run_cancel(self, options: argparse.Namespace) -> Figures:
        """S8: cancel one flow after the other, each a fan of `n` pending members."""
        bench = application(Meter(0))
        took: list[float] = []
        async with await Client.connect(options.dsn, namespace=NAMESPACE) as client:
            flows = [
                await client.start(fan(bench, options.n - 2))
                for _ in range(WARM_UP + options.cancels)
            ]
            for flow in flows:
                began = time.perf_counter()
                await flow.cancel("bench")
                took.append(1000 * (time.perf_counter() - began))
        if await self.flows_unfinished(options.dsn):
            raise RuntimeError("members of a cancelled flow have not ended")
        counted = sorted(took[WARM_UP:])
        return {
            "p50": percentile(counted, 50),
            "p99": percentile(counted, 99),
            "samples": float(len(counted)),
        }

    async def run_crash(self, options: argparse.Namespace) -> Figures:
        """S6: `n` of 50 ms each on two workers, undisturbed and then with one killed half-way."""
        healthy, _ = await self._slow_run(options, 0, kill=False)
        crashed, ran = await self._slow_run(options, options.n, kill=True)
        lost = 2 * options.n - await fetchval(options.dsn, COMPLETED)
        figures = {
            "lost": float(lost),
            "completed_twice": float(await fetchval(options.dsn, COMPLETED_TWICE)),
            "run_twice": float(sum(1 for times in ran.values() if times > 1)),
        }
        if lost:
            return figures
        return figures | {"healthy": healthy, "crashed": crashed, "beyond": crashed - healthy}

    async def _slow_run(
        self, options: argparse.Namespace, before: int, *, kill: bool
    ) -> tuple[float, Counter[str]]:
        """Seconds from the start of the workers to the last completion; runs by execution."""
        task = application(Meter(0)).slow
        client = await Client.connect(options.dsn, namespace=NAMESPACE)
        await client.submit_many([task.call(i=i) for i in range(options.n)])
        await client.close()
        with tempfile.TemporaryDirectory() as folder:
            runs = Path(folder) / "runs"
            options.concurrency = CRASH_CONCURRENCY
            extra = ("--runs", str(runs), "--lease-ttl", str(CRASH_LEASE_TTL))
            workers = [await WorkerProcess.start(options, *extra) for _ in range(2)]
            for worker in workers:
                worker.go()
            began = time.time()
            with contextlib.suppress(StalledError):
                if kill:
                    await self._until_completed(options, before + options.n // 2)
                    workers.pop().kill()
                await self.until_finished(options)
            for worker in workers:
                await worker.stop()
            total = min(before + options.n, await fetchval(options.dsn, COMPLETED))
            ended = await self.completed_at(options.dsn, total)
            assert ended is not None
            return ended - began, Counter(runs.read_text().split())

    async def _until_completed(self, options: argparse.Namespace, n: int) -> None:
        deadline = time.monotonic() + options.timeout
        while await fetchval(options.dsn, COMPLETED) < n:
            if time.monotonic() > deadline:
                raise StalledError
            await asyncio.sleep(0.02)

    async def run_idle(self, options: argparse.Namespace) -> Figures:
        """S9: one worker with all its sweeps and nothing to do."""
        counter = STATEMENTS if await fetchval(options.dsn, STATEMENTS_LIBRARY) else TRANSACTIONS
        worker = await WorkerProcess.start(options)
        worker.go()
        await asyncio.sleep(3.0)
        process = psutil.Process(worker.process.pid)
        began, counted, cpu = time.monotonic(), await fetchval(options.dsn, counter), spent(process)
        await asyncio.sleep(options.seconds)
        took = time.monotonic() - began
        counted = await fetchval(options.dsn, counter) - counted
        cpu = spent(process) - cpu
        await worker.stop()
        return {
            "statements": counted / took,
            "cpu": 100 * cpu / took,
            "counts_statements": float(counter == STATEMENTS),
        }

    async def run_fleet(self, options: argparse.Namespace) -> Figures:
        """S10: workers with `connections` connections in total drain `n` together."""
        workers = max(FLEET_PROCESSES, options.connections // CONNECTIONS_EACH)
        options.concurrency = options.concurrency or FLEET_CONCURRENCY
        processes = [
            await WorkerProcess.start(options, "--instances", str(share))
            for share in shares(workers, FLEET_PROCESSES)
        ]
        for process in processes:
            process.go()
        most = 0
        deadline = time.monotonic() + options.timeout
        while await self.unfinished(options.dsn):
            most = max(most, await fetchval(options.dsn, CONNECTIONS))
            if time.monotonic() > deadline:
                raise StalledError
            await asyncio.sleep(0.1)
        seen = [await process.stop() for process in processes]
        first = min(figures["first"] for figures in seen if figures["calls"])
        return await self.recorded(options, first) | {
            "connections": float(most),
            "workers": float(workers),
            "errors": float(sum(figures["errors"] for figures in seen)),
        }


class WarningCounter(logging.Handler):
    """Counts the warnings of a worker and prints them to standard error."""

    def __init__(self, meter: Meter) -> None:
        super().__init__(logging.WARNING)
        self._meter = meter

    def emit(self, record: logging.LogRecord) -> None:
        self._meter.errors += 1
        print(record.getMessage(), file=sys.stderr)


class Bench(NamedTuple):
    """The application and its two tasks."""

    app: App
    noop: Any
    slow: Any


def application(meter: Meter, runs: str = "") -> Bench:
    """The application; its handlers report to `meter`, slow ones append to the file `runs`."""
    app = App(namespace=NAMESPACE)
    log = os.open(runs, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if runs else -1

    @app.task("noop")
    async def noop(ctx: Any, i: int, at: float, pad: str) -> None:
        meter.seen(at)

    @app.task("slow")
    async def slow(ctx: Any, i: int) -> None:
        os.write(log, f"{i}\n".encode())
        await asyncio.sleep(CRASH_SECONDS)

    return Bench(app, noop, slow)


def fan(bench: Bench, width: int) -> Flow:
    """One member, `width` that wait for it, and one that waits for them all."""
    flow = bench.app.flow("fan")
    first = flow.add(bench.noop.call(**arguments(0)))
    middle = [flow.add(bench.noop.call(**arguments(i))).after(first) for i in range(width)]
    flow.add(bench.noop.call(**arguments(0))).after(*middle)
    return flow


def chain(bench: Bench, length: int) -> Flow:
    """Members in a row, each after the one before it."""
    flow = bench.app.flow("chain")
    members = [flow.add(bench.noop.call(**arguments(i))) for i in range(length)]
    for before, member in pairwise(members):
        member.after(before)
    return flow


def shares(total: int, parts: int) -> list[int]:
    """`total` in `parts` numbers that differ by one at most."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def spent(process: psutil.Process) -> float:
    """Seconds of CPU that a process has used."""
    times = process.cpu_times()
    return times.user + times.system


if __name__ == "__main__":
    main(FlowFabricAdapter(), uvloop.run)
