"""The application that FlowFabric is measured with, its flows, and an engine for direct calls."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, Final, NamedTuple

from metering import Meter, arguments

from flowfabric import App, Engine
from flowfabric.config import DatabaseConfig

NAMESPACE: Final = "bench"
SLOW_SECONDS: Final = 0.05
STEPS_ALONE: Final = 200
ENTRIES: Final = 1_000
SLEEP: Final = 5.0


class Bench(NamedTuple):
    """The application and its tasks."""

    app: App
    noop: Any
    slow: Any
    row: Any
    gathered: Any
    sleeper: Any
    listener: Any
    waiter: Any
    long: Any


def application(meter: Meter, runs: str = "") -> Bench:
    """The application; its handlers report to `meter`, slow ones append to the file `runs`."""
    app = App(namespace=NAMESPACE)
    log = os.open(runs, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if runs else -1

    @app.task("noop")
    async def noop(ctx: Any, i: int, at: float, pad: str) -> None:
        meter.seen(at)
        await meter.rest()

    @app.task("slow")
    async def slow(ctx: Any, i: int) -> None:
        os.write(log, f"{i}\n".encode())
        await asyncio.sleep(SLOW_SECONDS)

    return Bench(app, noop, slow, *durable_tasks(app, meter))


def durable_tasks(app: App, meter: Meter) -> tuple[Any, ...]:
    """The handlers that make durable calls."""

    async def step() -> int:
        return 1

    @app.task("row")
    async def row(ctx: Any, steps: int) -> tuple[float, int]:
        meter.seen(0.0)
        began, before = time.monotonic(), meter.statements
        for _ in range(steps):
            await ctx.step("step", step)
        return time.monotonic() - began, meter.statements - before

    @app.task("gathered")
    async def gathered(ctx: Any, width: int) -> None:
        meter.seen(0.0)
        await ctx.step("first", step)
        await asyncio.gather(*[ctx.step("middle", step) for _ in range(width)])
        await ctx.step("last", step)

    @app.task("sleeper")
    async def sleeper(ctx: Any) -> None:
        meter.seen(0.0)
        await ctx.sleep(SLEEP)

    @app.task("listener")
    async def listener(ctx: Any, times: int) -> None:
        seen = -1
        for number in range(times):
            at = await ctx.wait_for_signal("ping", type=float)
            seen = number if at > meter.last else seen
            if seen == number:  # not when the signal is read again from the journal
                meter.last = at
                meter.seen(at)

    @app.task("waiter")
    async def waiter(ctx: Any) -> None:
        await ctx.wait_for_signal("ping", type=float)

    @app.task("long")
    async def long(ctx: Any, times: int) -> None:
        began = time.monotonic()

        async def after(at: float) -> None:
            meter.seen(at)
            meter.since_claim.append(time.monotonic() - began)

        for _ in range(ENTRIES):
            await ctx.step("step", step)
        meter.reads = 0 if not meter.calls else meter.reads
        for _ in range(times):
            at = await ctx.wait_for_signal("ping", type=float)
            await ctx.step("after", after, at)

    return row, gathered, sleeper, listener, waiter, long


def fan(bench: Bench, width: int) -> Any:
    """One member, `width` that wait for it, and one that waits for them all."""
    flow = bench.app.flow("fan")
    first = flow.add(bench.noop.call(**arguments(0)))
    middle = [flow.add(bench.noop.call(**arguments(i))).after(first) for i in range(width)]
    flow.add(bench.noop.call(**arguments(0))).after(*middle)
    return flow


def chain(bench: Bench, length: int) -> Any:
    """Members in a row, each after the one before it."""
    flow = bench.app.flow("chain")
    members = [flow.add(bench.noop.call(**arguments(i))) for i in range(length)]
    for before, member in pairwise(members):
        member.after(before)
    return flow


@asynccontextmanager
async def connected(dsn: str, *, connections: int = 1) -> AsyncGenerator[Engine]:
    """An engine with so many connections, closed afterwards."""
    engine = await Engine.connect(DatabaseConfig(dsn=dsn, pool_size=connections))
    try:
        yield engine
    finally:
        await engine.close()
