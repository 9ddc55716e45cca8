"""Tasks that run in child processes and make durable calls, which they cannot."""

import asyncio

from flowfabric import App, Ctx

app = App()


@app.task("steps", executor="process")
def steps(ctx: Ctx) -> None:
    asyncio.run(ctx.step("work", asyncio.sleep, 0))


@app.task("blocking_steps", executor="process")
def blocking_steps(ctx: Ctx) -> None:
    ctx.sync.step("work", int)
