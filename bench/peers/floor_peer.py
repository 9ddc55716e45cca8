"""The floor: a bare queue in hand-written SQL, without leases, attempts or events.

It shows the most that asyncpg and Postgres can do on this machine. Submits are gathered into one
INSERT while the previous one is in flight; a worker claims a batch, calls the handlers and
completes the batch on its one connection.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import asyncpg
import uvloop
from asyncpg_fetch import fetchval
from common import Adapter, Submit, main
from metering import Meter, encoded

BATCH: Final = 200
BULK: Final = 1_000

INSTALL: Final = """
CREATE TABLE floor_queue (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    payload bytea NOT NULL,
    state smallint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz
) WITH (fillfactor = 70);
CREATE INDEX floor_queue_ready ON floor_queue (id) WHERE state = 0;
"""

INSERT: Final = """
-- floor.insert
INSERT INTO floor_queue (kind, payload) SELECT 'noop', unnest($1::bytea[]) RETURNING id
"""

CLAIM: Final = """
-- floor.claim
WITH picked AS (      -- the oldest first, passing over rows in use
    SELECT id FROM floor_queue WHERE state = 0 ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE floor_queue q SET state = 1 FROM picked WHERE q.id = picked.id RETURNING q.id, q.payload
"""

COMPLETE: Final = """
-- floor.complete
UPDATE floor_queue SET state = 2, ended_at = now() WHERE id = ANY ($1::bigint[]) AND state = 1
"""

COMPLETED_AT: Final = """
SELECT extract(epoch FROM ended_at)::float8 FROM floor_queue
 WHERE state = 2 ORDER BY ended_at OFFSET $1 - 1 LIMIT 1
"""


class Batcher:
    """Concurrent submits become one INSERT per round trip."""

    def __init__(self, conn: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._conn = conn
        self._waiting: list[tuple[bytes, asyncio.Future[int]]] = []
        self._flushing: asyncio.Task[None] | None = None

    async def submit(self, payload: bytes) -> int:
        """Insert one row; returns its id once the row is committed."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((payload, answer))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        return await answer

    async def _flush(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            rows = await self._conn.fetch(INSERT, [payload for payload, _ in batch])
            for (_, answer), row in zip(batch, rows, strict=True):
                answer.set_result(row["id"])
        self._flushing = None


class Floor(Adapter):
    """Three statements: insert, claim, complete."""

    async def setup(self, dsn: str) -> None:
        conn = await asyncpg.connect(dsn)
        await conn.execute(INSTALL)
        await conn.close()

    async def fill(self, dsn: str, n: int) -> None:
        await self.bulk(dsn, n)

    async def submit(self, dsn: str, run: Callable[[Submit], Awaitable[float]]) -> float:
        conn = await asyncpg.connect(dsn)
        batcher = Batcher(conn)
        try:
            return await run(lambda i, at: batcher.submit(encoded(i, at)))
        finally:
            await conn.close()

    async def bulk(self, dsn: str, n: int) -> float:
        conn = await asyncpg.connect(dsn)
        began = time.perf_counter()
        for start in range(0, n, BULK):
            numbers = range(start, min(start + BULK, n))
            await conn.fetch(INSERT, [encoded(i) for i in numbers])
        took = time.perf_counter() - began
        await conn.close()
        return took

    async def work(self, options: argparse.Namespace, meter: Meter, stop: asyncio.Event) -> None:
        conn = await asyncpg.connect(options.dsn)
        while not stop.is_set():
            rows = await conn.fetch(CLAIM, options.batch or BATCH)
            if rows:
                await handle(rows, meter)
                await conn.execute(COMPLETE, [row["id"] for row in rows])
            else:
                await asyncio.sleep(0.01)
        await conn.close()

    async def unfinished(self, dsn: str) -> bool:
        return await fetchval(dsn, "SELECT EXISTS (SELECT FROM floor_queue WHERE state < 2)")

    async def completed_at(self, dsn: str, n: int) -> float | None:
        return await fetchval(dsn, COMPLETED_AT, n)


async def handle(rows: Sequence[Any], meter: Meter) -> None:
    """Call a handler coroutine for every claimed row, each in a task of its own."""

    async def noop(at: float) -> None:
        meter.seen(at)

    await asyncio.gather(*(noop(json.loads(row["payload"])["at"]) for row in rows))


if __name__ == "__main__":
    main(Floor(), uvloop.run)
