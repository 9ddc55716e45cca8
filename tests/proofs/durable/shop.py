"""The application whose workers die in these proofs: `python -m tests.proofs.durable.shop`."""

import asyncio
import logging
import os
import random
import sys
import time
from collections.abc import Awaitable
from typing import Any

import msgspec

from flowfabric import App, Ctx

app = App()

LOSSES = 1000
"""Leases are lost here far more often than a task's default allows."""


class Diary:
    """Every line is in the file once `note` returns, and no death of the process takes it back."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, what: str, ctx: Ctx, number: int) -> None:
        line = f"{what} {ctx.execution_id.uuid} {number} {time.time_ns() // 1_000_000}\n"
        os.write(self._file, line.encode())


@app.task("summed", max_reclaims=LOSSES)
async def summed(ctx: Ctx, steps: int, beside: int, seconds: float) -> int:
    """The sum of its steps, the last of which run beside each other, in another order each time.

    A body leaves a line when it runs, and so does each step that ended. One body runs at a time,
    until it is recorded: a kill costs one run at the most.
    """
    diary: Diary = ctx.state.diary
    turn, ran = asyncio.Lock(), set[int]()

    async def body(number: int) -> int:
        await turn.acquire()
        ran.add(number)
        diary.note("ran", ctx, number)
        await asyncio.sleep(seconds)
        return number

    async def ended(number: int, call: Awaitable[int]) -> int:
        result = await call
        if number in ran:
            turn.release()
        diary.note("ended", ctx, number)
        return result

    async def at_some_time(number: int, call: Awaitable[int]) -> int:
        await asyncio.sleep(random.uniform(0, 0.005))
        return await ended(number, call)

    total = 0
    for number in range(steps - beside):
        total += await ended(number, ctx.step("count", body, number))
    calls = [(number, ctx.step("count", body, number)) for number in range(steps - beside, steps)]
    return total + sum(await asyncio.gather(*(at_some_time(*each) for each in calls)))


@app.task("patient", max_reclaims=LOSSES)
async def patient(ctx: Ctx) -> int:
    """Waits for the one signal that it gets."""
    number: int = await ctx.wait_for_signal("go", type=int)
    ctx.state.diary.note("woke", ctx, number)
    await asyncio.sleep(0.05)  # long enough to be killed in
    return number


async def main() -> None:
    """Run a worker; its DSN and settings are the arguments, the file of lines is a setting."""
    dsn, settings = sys.argv[1], msgspec.json.decode(sys.argv[2], type=dict[str, Any])
    logging.getLogger("flowfabric").addHandler(logging.NullHandler())
    app.state.diary = Diary(settings.pop("diary"))
    await app.worker(dsn=dsn, **settings).run()


if __name__ == "__main__":
    asyncio.run(main())
