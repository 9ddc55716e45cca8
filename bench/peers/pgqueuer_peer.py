# pyright: reportMissingImports=false
# The peer lives in an environment of its own (bench/environments.py).
"""PGQueuer as its performance guide advises.

asyncpg and uvloop; producers on a pool, the queue manager on one connection of its own;
`pgq autovac` settings; durable tables; large batches because the jobs are short.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import asyncpg
import uvloop
from asyncpg_fetch import fetchval
from common import Adapter, Submit, main
from metering import Meter, encoded
from pgqueuer import PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries

ENTRYPOINT = "noop"
BATCH = 200
BULK = 2_500
POOL = 4


class PgQueuerAdapter(Adapter):
    """Jobs are deleted from the queue table when they end, and logged in `pgqueuer_log`."""

    async def setup(self, dsn: str) -> None:
        conn = await asyncpg.connect(dsn)
        queries = Queries.from_asyncpg_connection(conn)
        await queries.install()
        await queries.optimize_autovacuum()
        await conn.close()

    async def fill(self, dsn: str, n: int) -> None:
        await self.bulk(dsn, n)

    async def submit(self, dsn: str, run: Callable[[Submit], Awaitable[float]]) -> float:
        async with asyncpg.create_pool(dsn, min_size=POOL, max_size=POOL) as pool:
            queries = Queries.from_asyncpg_pool(pool)

            async def submit(i: int, at: float) -> object:
                return await queries.enqueue(ENTRYPOINT, encoded(i, at))

            return await run(submit)

    async def bulk(self, dsn: str, n: int) -> float:
        conn = await asyncpg.connect(dsn)
        queries = Queries.from_asyncpg_connection(conn)
        began = time.perf_counter()
        for start in range(0, n, BULK):
            numbers = range(start, min(start + BULK, n))
            await queries.enqueue(
                [ENTRYPOINT] * len(numbers), [encoded(i) for i in numbers], [0] * len(numbers)
            )
        took = time.perf_counter() - began
        await conn.close()
        return took

    async def work(self, options: argparse.Namespace, meter: Meter, stop: asyncio.Event) -> None:
        conn = await asyncpg.connect(options.dsn)
        pgq = PgQueuer.from_asyncpg_connection(conn)

        @pgq.entrypoint(ENTRYPOINT)
        async def noop(job: Job) -> None:
            meter.seen(json.loads(job.payload or b"{}")["at"])
            await meter.rest()

        async def forward() -> None:
            await stop.wait()
            pgq.shutdown.set()

        task = asyncio.create_task(forward())
        # At most `concurrency` jobs at once; PGQueuer wants batches of half of that or less.
        batch = options.concurrency // 2 if options.concurrency else options.batch or BATCH
        await pgq.run(
            batch_size=batch,
            dequeue_timeout=timedelta(seconds=30),
            max_concurrent_tasks=options.concurrency,
        )
        await task
        await conn.close()

    async def unfinished(self, dsn: str) -> bool:
        return await fetchval(dsn, "SELECT EXISTS (SELECT FROM pgqueuer)")

    async def completed_at(self, dsn: str, n: int) -> float | None:
        return await fetchval(dsn, COMPLETED_AT, n)


COMPLETED_AT = """
SELECT extract(epoch FROM created)::float8 FROM pgqueuer_log
 WHERE status = 'successful' ORDER BY created OFFSET $1 - 1 LIMIT 1
"""


if __name__ == "__main__":
    main(PgQueuerAdapter(), uvloop.run)
