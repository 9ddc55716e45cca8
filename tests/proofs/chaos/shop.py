"""The application whose workers die in the chaos: `python -m tests.proofs.chaos.shop`."""

import asyncio
import os
import sys
import time

import msgspec

from flowfabric import App, Ctx, Retry

app = App()

LOSSES = 1000
"""Leases are lost here far more often than a task's default allows."""
BOOK = "INSERT INTO side (execution_id, lease_epoch) VALUES ($1, $2)"


@app.middleware
async def started(ctx: Ctx, call_next):
    """Every start leaves a line in a file, which no death of a process takes back."""
    line = f"{ctx.execution_id.uuid} {ctx.fence.lease_id} {time.time_ns() // 1_000_000}\n"
    os.write(ctx.state.starts, line.encode())
    return await call_next()


@app.task("plain", max_reclaims=LOSSES)
async def plain(ctx: Ctx, number: int, seconds: float) -> int:
    """Takes a while; the worker records its result."""
    await asyncio.sleep(seconds)
    return number


@app.task("stumble", retry=Retry(max_retries=3, initial=0.0), max_reclaims=LOSSES)
async def stumble(ctx: Ctx, number: int, seconds: float) -> int:
    """Fails at first."""
    await asyncio.sleep(seconds)
    if ctx.attempt_index == 0:
        raise RuntimeError("not yet")
    return number


@app.task("join", max_reclaims=LOSSES)
async def join(ctx: Ctx, seconds: float) -> int:
    """The sum of what it waited for."""
    await asyncio.sleep(seconds)
    return sum((await ctx.upstreams()).values())


@app.task("booked", max_reclaims=LOSSES)
async def booked(ctx: Ctx, number: int, seconds: float) -> int:
    """Writes a row of its own, which is there if and only if its result is."""
    await asyncio.sleep(seconds)
    tx = await ctx.transaction()
    await tx.execute(BOOK, ctx.execution_id.uuid, ctx.fence.lease_epoch)
    return number


async def main() -> None:
    """Run a worker; its DSN, the file of starts and its settings are the arguments."""
    dsn, starts, settings = sys.argv[1], sys.argv[2], msgspec.json.decode(sys.argv[3])
    app.state.starts = os.open(starts, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    await app.worker(dsn=dsn, **settings).run()


if __name__ == "__main__":
    asyncio.run(main())
