"""FlowFabric by its public API, with uvloop; and the scenarios that no peer runs."""

import argparse
import asyncio
import importlib
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import asyncpg
import uvloop
from asyncpg_fetch import fetchval
from common import LENGTH, WIDTH, Adapter, Submit, main
from flowfabric_app import NAMESPACE, application, chain, fan
from metering import Figures, Meter, arguments

from flowfabric import Client, Engine
from flowfabric.db.migrate import migrate
from flowfabric.worker.loop import Worker  # loaded before a worker process says that it is ready

CONCURRENCY: Final = 400
BULK: Final = 10_000
LEASE_TTL: Final = 30.0

OWN: Final = {
    "submit-flow": "own_flows",
    "cancel": "own_flows",
    "crash": "own_crash",
    "idle": "own_fleets",
    "fleet": "own_fleets",
    "completes": "own_completes",
    "wait": "own_completes",
    "cost": "own_cost",
    "routes": "own_routes",
    "fill-reads": "own_reads",
    "reads": "own_reads",
    "steady": "own_steady",
    "steps-alone": "own_durable",
    "sleeps": "own_durable",
    "signal-alone": "own_durable",
    "long-wake": "own_durable",
    "schedules": "own_schedules",
    "fill-limited": "own_limits",
    "fill-beside-held": "own_limits",
    "frames": "own_streams",
    "frames-alone": "own_streams",
}
"""The scenarios that only FlowFabric runs, by module: the function of the name measures.

A module is imported when its scenario runs: what it needs of FlowFabric may be missing in the base
of a comparison, and the other scenarios then still run.
"""

READS: Final = ("read_journal", "read_inbox", "read_outcomes", "read_join", "read_waitpoints")
"""What a wake of a handler may read before its first new step."""

TABLES: Final = """
SELECT ARRAY(SELECT name FROM unnest(ARRAY['ready', 'quota_policy']) AS name
              WHERE to_regclass('ff.' || name) IS NOT NULL)
"""
"""Which of these tables there are: a base may lack them."""

QUEUED: Final = "EXISTS (SELECT FROM ff.ready) OR EXISTS (SELECT FROM ff.lease)"

QUEUED_IN_CORE: Final = """EXISTS (
        SELECT FROM ff.exec_core WHERE eligibility_state = 'eligible_now')
    OR EXISTS (SELECT FROM ff.exec_core WHERE lifecycle_phase = 'active')"""

DELAYED: Final = "EXISTS (SELECT FROM ff.exec_core WHERE delay_until_ms IS NOT NULL)"

HELD_BACK: Final = """EXISTS (SELECT FROM ff.exec_core WHERE exceptional_state = 'blocked_by_quota'
            AND NOT EXISTS (SELECT FROM ff.quota_policy WHERE name = 'slow'))"""

COMPLETED_AT: Final = """
SELECT occurred_at_ms / 1000.0::float8 FROM ff.completion_event
 WHERE outcome = 'success' ORDER BY occurred_at_ms OFFSET $1 - 1 LIMIT 1
"""

FLOWS_UNFINISHED: Final = (
    "SELECT EXISTS (SELECT FROM ff.exec_core WHERE lifecycle_phase <> 'terminal')"
)

FLOW_TIMES: Final = """
SELECT f.created_at_ms / 1000.0::float8, max(e.occurred_at_ms) / 1000.0::float8
  FROM ff.flow_core f JOIN ff.completion_event e USING (partition_key, flow_id)
 WHERE e.outcome = 'success'
 GROUP BY f.partition_key, f.flow_id HAVING count(*) = f.node_count
 ORDER BY f.created_at_ms
"""


class FlowFabricAdapter(Adapter):
    """Executions stay in `ff.exec_core`; each one that ends writes a completion event."""

    _unfinished = ""

    def add_options(self, parse: argparse.ArgumentParser) -> None:
        parse.add_argument("--runs", default="", help="file that every crash handler appends to")
        parse.add_argument("--lane", default="default")
        parse.add_argument("--lease-ttl", type=float, default=LEASE_TTL)
        parse.add_argument("--cancels", type=int, default=20, help="flows to cancel")
        parse.add_argument("--routes", type=int, default=200, help="routes of a lane")
        parse.add_argument("--rate", type=float, default=2_000.0, help="submits/s, steady load")
        parse.add_argument("--retention", type=float, default=60.0, help="seconds, steady load")

    def scenario(self, name: str) -> Callable[[argparse.Namespace], Awaitable[Figures]]:
        if name not in OWN:
            return super().scenario(name)
        return partial(getattr(importlib.import_module(OWN[name]), name.replace("-", "_")), self)

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
            match shape:
                case "row":
                    return await client.submit(bench.row.call(LENGTH))
                case "gathered":
                    return await client.submit(bench.gathered.call(WIDTH))
                case "fan":
                    return await client.start(fan(bench, WIDTH))
                case _:
                    return await client.start(chain(bench, LENGTH))

        try:
            return await run(start)
        finally:
            await client.close()

    async def signals(
        self, options: argparse.Namespace, run: Callable[[Submit], Awaitable[float]]
    ) -> None:
        from own_signals import signals  # what it needs is missing in older bases

        await signals(options, run)

    async def work(self, options: argparse.Namespace, meter: Meter, stop: asyncio.Event) -> None:
        if options.shape == "long":
            count_reads(meter)
        elif options.shape == "row":
            count_statements(meter)
        logging.getLogger("flowfabric").addHandler(WarningCounter(meter))
        app = application(meter, options.runs).app
        worker: Worker = app.worker(
            dsn=options.dsn,
            lanes=[options.lane],
            concurrency=options.concurrency or CONCURRENCY,
            lease_ttl=options.lease_ttl,
        )
        running = asyncio.create_task(worker.run())
        await stop.wait()
        worker.stop()
        await running

    async def unfinished(self, dsn: str) -> bool:
        if not self._unfinished:
            tables = await fetchval(dsn, TABLES)
            any_of = [QUEUED if "ready" in tables else QUEUED_IN_CORE, DELAYED]
            any_of += [HELD_BACK] if "quota_policy" in tables else []
            self._unfinished = f"SELECT {' OR '.join(any_of)}"
        return bool(await fetchval(dsn, self._unfinished))

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


def count_reads(meter: Meter) -> None:
    """Count the reads that wakes of durable handlers make."""
    for name in READS:
        read = getattr(Engine, name)

        async def counted(*args: Any, read: Any = read, **options: Any) -> Any:
            meter.reads += 1
            return await read(*args, **options)

        setattr(Engine, name, counted)


def count_statements(meter: Meter) -> None:
    """Count what the process sends to the server."""
    for name in ("_execute", "execute"):
        send = getattr(asyncpg.Connection, name)

        async def counted(*args: Any, send: Any = send, **options: Any) -> Any:
            meter.statements += 1
            return await send(*args, **options)

        setattr(asyncpg.Connection, name, counted)


class WarningCounter(logging.Handler):
    """Counts the warnings of a worker and prints them to standard error."""

    def __init__(self, meter: Meter) -> None:
        super().__init__(logging.WARNING)
        self._meter = meter

    def emit(self, record: logging.LogRecord) -> None:
        self._meter.errors += 1
        print(record.getMessage(), file=sys.stderr)


if __name__ == "__main__":
    main(FlowFabricAdapter(), uvloop.run)
