"""D10 and D11: frames of one worker, and how soon a reader has them."""

import argparse
import asyncio
import time
from typing import Final

from common import Adapter
from flowfabric_app import NAMESPACE
from metering import Figures, milliseconds, rate

from flowfabric import App, Client, Ctx
from flowfabric.worker.frame_writer import FrameWriter

OF_EACH: Final = 5_000
TEXT: Final = "a token of a language model"
PAUSE: Final = 0.05


async def frames(adapter: Adapter, options: argparse.Namespace) -> Figures:
    """D10: handlers of one worker emit `n` durable frames; from the first to the last commit."""
    app = App(namespace=NAMESPACE)
    sent: list[int] = []

    @app.task("emits")
    async def emits(ctx: Ctx) -> None:
        for _ in range(OF_EACH):
            await ctx.emit("token", TEXT)

    send = FrameWriter._send

    async def counted(writer: FrameWriter, batch: object) -> None:
        sent.append(1)
        await send(writer, batch)  # type: ignore[arg-type]

    FrameWriter._send = counted  # type: ignore[method-assign]
    handlers = max(1, options.n // OF_EACH)
    async with await Client.connect(options.dsn, namespace=NAMESPACE) as client:
        await client.submit_many([emits.call() for _ in range(handlers)])
        began = time.monotonic()
        await app.worker(dsn=options.dsn, concurrency=16).run_until_idle()
        took = time.monotonic() - began
    total = handlers * OF_EACH
    return rate(total, took) | {"batch": total / len(sent)}


async def frames_alone(adapter: Adapter, options: argparse.Namespace) -> Figures:
    """D11: one handler emits now and then; each frame carries when it was emitted."""
    app = App(namespace=NAMESPACE)

    @app.task("ticks")
    async def ticks(ctx: Ctx) -> None:
        for _ in range(options.repeats):
            await asyncio.sleep(PAUSE)
            await ctx.emit("tick", repr(time.monotonic()))

    late: list[float] = []
    async with (
        await Client.connect(options.dsn, namespace=NAMESPACE) as client,
        app.worker(dsn=options.dsn),
    ):
        handle = await client.submit(ticks.call())
        async for frame in handle.stream():
            late.append(time.monotonic() - float(frame.text))
    return milliseconds(late)
