"""asyncpg against psycopg 3 on the engine's own statements: `python -m bench.drivers`.

Each driver creates 10,000 executions in statements of 1,000 and drains them in batches of 200 over
two connections, with the parameters as arrays; create also as one JSON document that the server
unpacks. The figures are rates and the client's own CPU per execution.
"""

from __future__ import annotations

import asyncio
import json
import resource
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import psycopg
from psycopg.rows import tuple_row

from bench.postgres import running_cluster
from flowfabric.db.migrate import migrate
from flowfabric.db.rows import positional
from flowfabric.engine.lifecycle.claim import CLAIM
from flowfabric.engine.lifecycle.complete import COMPLETE
from flowfabric.engine.lifecycle.create_execution import CREATE_EXECUTION as CREATE
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.engine.lifecycle.creation_columns import creation_columns
from flowfabric.ids import ExecutionId

EXECUTIONS = 10_000
BATCH = 200
PAYLOAD = json.dumps({"order": "o-123456", "total": 4200, "note": "x" * 60}).encode()
FROM_DOCUMENT = """
SELECT count(*) FROM ff.create_execution(
    ARRAY['default'], ARRAY['default'], ARRAY['noop'], ARRAY[''], ARRAY['json'], NULL, NULL,
    (SELECT array_agg((r ->> 'p')::smallint) FROM jsonb_array_elements(%(document)s::jsonb) r),
    (SELECT array_agg((r ->> 'i')::uuid) FROM jsonb_array_elements(%(document)s::jsonb) r),
    (SELECT array_agg(1) FROM jsonb_array_elements(%(document)s::jsonb) r),
    (SELECT array_agg(convert_to(r ->> 'd', 'UTF8'))
       FROM jsonb_array_elements(%(document)s::jsonb) r),
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""

Run = Callable[[str, dict[str, Any]], Awaitable[list[Any]]]


async def asyncpg_run(dsn: str) -> Run:
    conn = await asyncpg.connect(dsn)

    async def run(sql: str, params: dict[str, Any]) -> list[Any]:
        text, names = positional(sql)
        return await conn.fetch(text, *[params[name] for name in names])

    return run


async def psycopg_run(dsn: str) -> Run:
    conn = await psycopg.AsyncConnection.connect(
        dsn, autocommit=True, prepare_threshold=0, row_factory=tuple_row
    )

    async def run(sql: str, params: dict[str, Any]) -> list[Any]:
        cursor = conn.cursor(binary=True)
        await cursor.execute(sql.encode(), params)
        return await cursor.fetchall()

    return run


def columns(count: int) -> dict[str, Any]:
    return creation_columns(
        [
            NewExecution(
                execution_id=ExecutionId.mint(),
                execution_kind="noop",
                input_payload=PAYLOAD,
                payload_encoding="json",
            )
            for _ in range(count)
        ]
    ) | {"now_ms": None}


def document(count: int) -> dict[str, Any]:
    minted = [ExecutionId.mint() for _ in range(count)]
    text = PAYLOAD.decode()
    rows = [{"p": i.partition_key, "i": str(i.uuid), "d": text} for i in minted]
    return {"document": json.dumps(rows)}


async def drain(run: Run, worker: str) -> int:
    done = 0
    while True:
        lease_id = uuid.uuid4()
        claimed = await run(
            CLAIM,
            {
                "lanes": ["default"],
                "kinds": ["noop"],
                "capabilities": [],
                "namespace": "default",
                "worker_id": "bench",
                "worker_instance_id": worker,
                "lease_id": lease_id,
                "ttl_ms": 30_000,
                "limit": BATCH,
            },
        )
        if not claimed:
            return done
        refused = await run(
            COMPLETE,
            {
                "partition_key": [row[0] for row in claimed],
                "execution_id": [row[1] for row in claimed],
                "attempt_index": [row[2] for row in claimed],
                "lease_epoch": [row[3] for row in claimed],
                "lease_id": [lease_id] * len(claimed),
                "result": [b"null"] * len(claimed),
            },
        )
        assert not refused
        done += len(claimed)


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measured(work: Awaitable[object]) -> str:
    began, used = time.perf_counter(), cpu()
    await work
    seconds, busy = time.perf_counter() - began, cpu() - used
    return f"{EXECUTIONS / seconds:9,.0f}/s  {busy / EXECUTIONS * 1e6:5.1f} us client CPU each"


async def compare() -> None:
    async with running_cluster() as cluster:
        for name, connect in (("asyncpg", asyncpg_run), ("psycopg", psycopg_run)) * 2:
            dsn = await cluster.create("drivers")
            await migrate(dsn)
            runs = [await connect(dsn) for _ in range(2)]
            arrays = [columns(1000) for _ in range(EXECUTIONS // 1000)]
            documents = [document(1000) for _ in range(EXECUTIONS // 1000)]
            await cluster.checkpoint()
            print(f"{name:8} create, arrays    {await measured(each(runs[0], CREATE, arrays))}")
            both = asyncio.gather(*[drain(run, f"w-{n}") for n, run in enumerate(runs)])
            print(f"{name:8} drain, arrays     {await measured(both)}")
            work = each(runs[0], FROM_DOCUMENT, documents)
            print(f"{name:8} create, document  {await measured(work)}")


async def each(run: Run, sql: str, batches: list[dict[str, Any]]) -> None:
    for batch in batches:
        await run(sql, batch)


if __name__ == "__main__":
    import uvloop

    uvloop.run(compare())
