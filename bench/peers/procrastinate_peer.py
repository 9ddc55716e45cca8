# pyright: reportMissingImports=false
# The peer lives in an environment of its own (bench/environments.py).
"""Procrastinate with its psycopg connector, binary psycopg, LISTEN on and finished jobs kept."""

import argparse
import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import procrastinate
import psycopg
from common import Adapter, Submit, main
from metering import Meter, arguments
from psycopg_fetch import fetchval

CONCURRENCY = 10
BULK = 2_500
CLIENT_POOL = 8
WORKER_POOL = 3

UNFINISHED = """
SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))
"""

COMPLETED_AT = """
SELECT extract(epoch FROM at)::float8 FROM procrastinate_events
 WHERE type = 'succeeded' ORDER BY at OFFSET %s - 1 LIMIT 1
"""

CLONE = """
INSERT INTO procrastinate_jobs (queue_name, task_name, priority, lock, queueing_lock, args)
SELECT queue_name, task_name, priority, lock, queueing_lock, args || jsonb_build_object('i', i)
  FROM procrastinate_jobs, generate_series(1, %s) AS i
"""


class ProcrastinateAdapter(Adapter):
    """Each job is fetched and finished by a function call of its own; events are kept."""

    async def setup(self, dsn: str) -> None:
        async with app(dsn, Meter(0), 1).open_async() as opened:
            await opened.schema_manager.apply_schema_async()

    async def fill(self, dsn: str, n: int) -> None:
        """Defer one job by the library and clone its row; without the NOTIFY of each job."""
        await self.bulk(dsn, 1)
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            await conn.execute("ALTER TABLE procrastinate_jobs DISABLE TRIGGER USER")
            await conn.execute(
                "ALTER TABLE procrastinate_jobs ENABLE TRIGGER "
                "procrastinate_trigger_status_events_insert_v1"
            )
            await conn.execute(CLONE, (n - 1,))
            await conn.execute("ALTER TABLE procrastinate_jobs ENABLE TRIGGER USER")

    async def submit(self, dsn: str, run: Callable[[Submit], Awaitable[float]]) -> float:
        async with app(dsn, Meter(0), CLIENT_POOL).open_async() as opened:
            task = opened.tasks["noop"]

            async def submit(i: int, at: float) -> object:
                return await task.defer_async(**arguments(i, at))

            return await run(submit)

    async def bulk(self, dsn: str, n: int) -> float:
        async with app(dsn, Meter(0), 1).open_async() as opened:
            task = opened.tasks["noop"]
            began = time.perf_counter()
            for start in range(0, n, BULK):
                numbers = range(start, min(start + BULK, n))
                await task.batch_defer_async(*(arguments(i) for i in numbers))
            return time.perf_counter() - began

    async def work(self, options: argparse.Namespace, meter: Meter, stop: asyncio.Event) -> None:
        concurrency = options.concurrency or CONCURRENCY
        async with app(options.dsn, meter, options.batch or WORKER_POOL).open_async() as opened:
            worker = asyncio.create_task(
                opened.run_worker_async(
                    concurrency=concurrency,
                    install_signal_handlers=False,
                    shutdown_graceful_timeout=10,
                )
            )
            await stop.wait()
            worker.cancel()
            await asyncio.wait([worker])

    async def unfinished(self, dsn: str) -> bool:
        return await fetchval(dsn, UNFINISHED)

    async def completed_at(self, dsn: str, n: int) -> float | None:
        return await fetchval(dsn, COMPLETED_AT, n)


def app(dsn: str, meter: Meter, pool: int) -> procrastinate.App:
    """The application with its one task."""
    connector = procrastinate.PsycopgConnector(conninfo=dsn, min_size=pool, max_size=pool)
    application = procrastinate.App(connector=connector)

    @application.task(name="noop")
    async def noop(i: int, at: float, pad: str) -> None:
        meter.seen(at)

    return application


if __name__ == "__main__":
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    main(ProcrastinateAdapter())
