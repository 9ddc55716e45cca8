"""D8: queues of executions that have limits, for drains."""

import argparse
from typing import Any, Final

from common import Adapter
from flowfabric_app import NAMESPACE
from metering import Figures, arguments

from flowfabric import App, Client, Rate

BULK: Final = 10_000
KEYS: Final = 1_000
HELD_BACK: Final = 100_000


async def fill_limited(_: Adapter, options: argparse.Namespace) -> Figures:
    """`n` executions of 1,000 keys, of each of which one may run at once."""
    app = App(namespace=NAMESPACE)

    @app.task("noop", limit=app.limit("one", concurrency=1), limit_key=lambda i, *_: f"k{i % KEYS}")
    async def noop(ctx: Any, i: int, at: float, pad: str) -> None: ...

    await _submit(options.dsn, noop, options.n)
    return {}


async def fill_beside_held(_: Adapter, options: argparse.Namespace) -> Figures:
    """`n` executions without a limit, behind 100,000 of one key that a rate holds back."""
    app, free = App(namespace=NAMESPACE), App(namespace=NAMESPACE)
    slow = app.limit("slow", rate=Rate(1, per=86_400))

    @app.task("noop", limit=slow)
    async def held(ctx: Any, i: int, at: float, pad: str) -> None: ...

    @free.task("noop")
    async def noop(ctx: Any, i: int, at: float, pad: str) -> None: ...

    await _submit(options.dsn, held, HELD_BACK)
    await _submit(options.dsn, noop, options.n)
    return {}


async def _submit(dsn: str, task: Any, n: int) -> None:
    async with await Client.connect(dsn, namespace=NAMESPACE) as client:
        for start in range(0, n, BULK):
            numbers = range(start, min(start + BULK, n))
            await client.submit_many([task.call(**arguments(i)) for i in numbers])
