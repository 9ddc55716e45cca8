# pyright: reportMissingImports=false
# The peer lives in an environment of its own (bench/environments.py).
"""DBOS with a database-backed queue, a client for the submits and workflows without steps.

A bounded worker concurrency keeps one claim from taking the whole backlog, and the queue polls
ten times a second instead of once. Sync workflows on a bounded thread pool outrun async ones.
A flow is a parent workflow: a fan starts its middle as child workflows on the other threads and
waits for them, a chain calls one child workflow after the other.
"""

import argparse
import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable

import psycopg
from common import LENGTH, WIDTH, Adapter, StalledError, Submit, gathered, main
from dbos import DBOS, DBOSClient
from metering import Meter, arguments
from psycopg import sql
from psycopg_fetch import fetchval

QUEUE = "bench"
VERSION = "bench"
CLIENT_POOL = 4
WORKER_POOL = 20
WORKER_THREADS = 16
WORKER_CONCURRENCY = 200
POLLING_INTERVAL = 0.1
FLOW_CONCURRENCY = 8  # the other half of the threads is for the children that a fan waits for
CONCURRENCY = {"fan": FLOW_CONCURRENCY, "chain": FLOW_CONCURRENCY, "signal": 1_000}
SETTLE = 2.0  # seconds after which workflows that were started wait for their message

UNFINISHED = """
SELECT EXISTS (SELECT FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING'))
"""

STARTED = "SELECT count(*) FROM dbos.workflow_status WHERE status = 'PENDING'"

COMPLETED_AT = """
SELECT completed_at / 1000.0::float8 FROM dbos.workflow_status
 WHERE status = 'SUCCESS' ORDER BY completed_at OFFSET %s - 1 LIMIT 1
"""

FLOW_TIMES = """
SELECT created_at / 1000.0::float8, completed_at / 1000.0::float8 FROM dbos.workflow_status
 WHERE status = 'SUCCESS' AND name IN ('fan', 'chain') ORDER BY created_at
"""

COLUMNS = """
SELECT column_name FROM information_schema.columns
 WHERE table_schema = 'dbos' AND table_name = %s AND is_generated = 'NEVER'
   AND column_name <> 'workflow_uuid'
"""

CLONE = sql.SQL("""
INSERT INTO {table} (workflow_uuid, {names})
SELECT 'clone-' || i, {values} FROM {table}, generate_series(1, %s) AS i
""")


class DbosAdapter(Adapter):
    """A workflow is one row; the queue's thread claims rows at its polling interval."""

    async def setup(self, dsn: str) -> None:
        await launch(dsn, Meter(0), WORKER_CONCURRENCY)
        await asyncio.to_thread(DBOS.destroy)

    async def fill(self, dsn: str, n: int) -> None:
        """Enqueue one workflow by the library and clone its row."""

        async def run(submit: Submit) -> float:
            await submit(0, 0.0)
            return 0.0

        await self.submit(dsn, run)
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            await clone(conn, n - 1)

    async def submit(self, dsn: str, run: Callable[[Submit], Awaitable[float]]) -> float:
        return await self._enqueue(dsn, "noop", run)

    async def start_flows(
        self, dsn: str, shape: str, run: Callable[[Submit], Awaitable[float]]
    ) -> float:
        return await self._enqueue(dsn, shape, run)

    async def _enqueue(
        self, dsn: str, workflow: str, run: Callable[[Submit], Awaitable[float]]
    ) -> float:
        client = DBOSClient(system_database_url=dsn, system_database_pool_size=CLIENT_POOL)
        options = {"queue_name": QUEUE, "workflow_name": workflow}

        async def submit(i: int, at: float) -> object:
            return await client.enqueue_async(options, **arguments(i, at))

        try:
            return await run(submit)
        finally:
            await asyncio.to_thread(client.destroy)

    async def signals(
        self, options: argparse.Namespace, run: Callable[[Submit], Awaitable[float]]
    ) -> None:
        client = DBOSClient(system_database_url=options.dsn, system_database_pool_size=CLIENT_POOL)

        async def start(i: int, at: float) -> object:
            enqueued = {"queue_name": QUEUE, "workflow_name": "waiter", "workflow_id": f"w-{i}"}
            return await client.enqueue_async(enqueued)

        async def send(i: int, at: float) -> object:
            return await client.send_async(f"w-{i}", 1.0, topic="ping")

        try:
            await gathered(start, options.n, options.in_flight)
            deadline = time.monotonic() + options.timeout
            while await fetchval(options.dsn, STARTED) < options.n:
                if time.monotonic() > deadline:
                    raise StalledError
                await asyncio.sleep(0.1)
            await asyncio.sleep(SETTLE)
            await run(send)
        finally:
            await asyncio.to_thread(client.destroy)

    async def work(self, options: argparse.Namespace, meter: Meter, stop: asyncio.Event) -> None:
        best = CONCURRENCY.get(options.shape, WORKER_CONCURRENCY)
        await launch(options.dsn, meter, options.concurrency or best)
        await stop.wait()
        await asyncio.to_thread(DBOS.destroy, workflow_completion_timeout_sec=10)

    async def unfinished(self, dsn: str) -> bool:
        return await fetchval(dsn, UNFINISHED)

    async def completed_at(self, dsn: str, n: int) -> float | None:
        return await fetchval(dsn, COMPLETED_AT, n)

    async def flow_times(self, dsn: str) -> list[tuple[float, float]]:
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            return await (await conn.execute(FLOW_TIMES)).fetchall()


async def launch(dsn: str, meter: Meter, concurrency: int) -> None:
    """Start DBOS in this process with its workflows and its one queue."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": dsn,
            "sys_db_pool_size": WORKER_POOL,
            "executor_id": f"bench-{os.getpid()}",
            "application_version": VERSION,
            "log_level": "ERROR",
            "max_executor_threads": WORKER_THREADS,
        }
    )

    @DBOS.workflow(name="noop")
    def noop(i: int, at: float, pad: str) -> None:
        meter.seen(at)

    @DBOS.workflow(name="fan")
    def fan(i: int, at: float, pad: str) -> None:
        handles = [DBOS.start_workflow(noop, **arguments(n)) for n in range(WIDTH)]
        for handle in handles:
            handle.get_result()
        noop(**arguments(i))

    @DBOS.workflow(name="chain")
    def chain(i: int, at: float, pad: str) -> None:
        for n in range(LENGTH):
            noop(**arguments(n))

    @DBOS.step(name="step")
    def step() -> int:
        return 1

    @DBOS.step(name="step_async")
    async def step_async() -> int:
        return 1

    @DBOS.workflow(name="row")
    def row(i: int, at: float, pad: str) -> None:
        meter.seen(at)
        for _ in range(LENGTH):
            step()

    @DBOS.workflow(name="gathered")
    async def gathered_steps(i: int, at: float, pad: str) -> None:
        meter.seen(at)
        await step_async()
        await asyncio.gather(*[step_async() for _ in range(WIDTH)])
        await step_async()

    @DBOS.workflow(name="waiter")
    async def waiter() -> None:
        await DBOS.recv_async("ping", timeout_seconds=600)

    await asyncio.to_thread(DBOS.launch)
    await DBOS.register_queue_async(
        QUEUE, worker_concurrency=concurrency, polling_interval_sec=POLLING_INTERVAL
    )


async def clone(conn: psycopg.AsyncConnection, n: int) -> None:
    """Copy the only queued workflow and its input `n` times, a millisecond apart."""
    columns: dict[str, list[str]] = {}
    for table in ("workflow_status", "workflow_input"):
        cursor = await conn.execute(COLUMNS, (table,))
        columns[table] = [row[0] for row in await cursor.fetchall()]
    later = {"created_at": sql.SQL("created_at + i")}
    for table, names in columns.items():
        copied = [sql.Identifier(name) for name in names]
        values = [later.get(name, sql.Identifier(name)) for name in names]
        await conn.execute(
            CLONE.format(
                table=sql.Identifier("dbos", table),
                names=sql.SQL(", ").join(copied),
                values=sql.SQL(", ").join(values),
            ),
            (n,),
        )


if __name__ == "__main__":
    logging.getLogger("dbos").setLevel(logging.ERROR)
    main(DbosAdapter())
