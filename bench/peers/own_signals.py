"""D6: many handlers that wait, and a signal for each."""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from asyncpg_fetch import fetchval
from common import StalledError, Submit
from flowfabric_app import NAMESPACE, application
from metering import Meter

from flowfabric import Client

SUSPENDED: Final = "SELECT count(*) FROM ff.exec_core WHERE lifecycle_phase = 'suspended'"


async def signals(options: argparse.Namespace, run: Callable[[Submit], Awaitable[float]]) -> None:
    """Start `n` handlers that wait for a signal; once all are suspended, signal each."""
    task = application(Meter(0)).waiter
    client = await Client.connect(options.dsn, namespace=NAMESPACE)
    try:
        handles = await client.submit_many([task.call() for _ in range(options.n)])
        deadline = time.monotonic() + options.timeout
        while await fetchval(options.dsn, SUSPENDED) < options.n:
            if time.monotonic() > deadline:
                raise StalledError
            await asyncio.sleep(0.1)

        async def send(i: int, at: float) -> object:
            return await handles[i].signal("ping", 1.0)

        await run(send)
    finally:
        await client.close()
