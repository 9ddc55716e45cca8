"""The application whose workers die in the chaos: `python -m tests.proofs.chaos.shop`."""

import asyncio
import os
import sys

import msgspec

from flowfabric import App, Ctx, LeaseLost, Retry
from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection
from flowfabric.db.transaction import repeated, transact
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete

app = App()

PATIENCE = "SELECT set_config('idle_in_transaction_session_timeout', $1, true)"
BOOK = "INSERT INTO side (execution_id, lease_epoch) VALUES ($1, $2)"


@app.middleware
async def started(ctx: Ctx, call_next):
    """Every start leaves a line in a file, which no death of a process takes back."""
    fence = ctx.fence
    line = f"{ctx.execution_id.uuid} {ctx.attempt_index} {fence.lease_epoch}\n"
    os.write(ctx.state.starts, line.encode())
    return await call_next()


@app.task("plain")
async def plain(ctx: Ctx, number: int, seconds: float) -> int:
    """Takes a while; the worker records its result."""
    await asyncio.sleep(seconds)
    return number


@app.task("stumble", retry=Retry(max_retries=3, initial=0.0))
async def stumble(ctx: Ctx, number: int, seconds: float) -> int:
    """Fails at first."""
    await asyncio.sleep(seconds)
    if ctx.attempt_index == 0:
        raise RuntimeError("not yet")
    return number


@app.task("join")
async def join(ctx: Ctx, seconds: float) -> int:
    """The sum of what it waited for."""
    await asyncio.sleep(seconds)
    return sum((await ctx.upstreams()).values())


@app.task("booked")
async def booked(ctx: Ctx, number: int, seconds: float) -> int:
    """Ends its execution and writes a row of its own in one transaction of its own."""
    await asyncio.sleep(seconds)
    lease = ctx.claimed.lease

    async def book(conn: Connection) -> None:
        # Who freezes in here holds the row; the server must let go of it as it lets go of a lease.
        await conn.execute(PATIENCE, f"{round(ctx.state.ttl * 1000)}")
        [answer] = await complete(conn, [Completion(lease, b"%d" % number)])
        if not isinstance(answer, Completed):
            raise LeaseLost(str(answer))
        if not answer.repeated:
            await conn.execute(BOOK, ctx.execution_id.uuid, lease.lease_epoch)

    await repeated(lambda: transact(ctx.state.pool, "book", book))
    return number


async def main() -> None:
    """Run a worker; its DSN, the file of starts and its settings are the arguments."""
    dsn, starts, settings = sys.argv[1], sys.argv[2], msgspec.json.decode(sys.argv[3])
    app.state.ttl = settings["lease_ttl"]
    app.state.starts = os.open(starts, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    app.state.pool = await Pool.open(DatabaseConfig(dsn=dsn, pool_size=4), role="shop")
    await app.worker(dsn=dsn, **settings).run()


if __name__ == "__main__":
    asyncio.run(main())
