"""S5, S8: one large flow in one call; the cancellation of flows."""

import argparse
import time
from typing import Final

from common import Adapter
from flowfabric_app import NAMESPACE, application, fan
from metering import Figures, Meter, milliseconds

from flowfabric import Client

WARM_UP: Final = 5


async def submit_flow(_: Adapter, options: argparse.Namespace) -> Figures:
    """S5: one flow of `n` members, a fan, started in one call."""
    flow = fan(application(Meter(0)), options.n - 2)
    async with await Client.connect(options.dsn, namespace=NAMESPACE) as client:
        began = time.perf_counter()
        await client.start(flow)
        return {"seconds": time.perf_counter() - began}


async def cancel(adapter: Adapter, options: argparse.Namespace) -> Figures:
    """S8: cancel one flow after the other, each a fan of `n` pending members."""
    bench = application(Meter(0))
    took: list[float] = []
    async with await Client.connect(options.dsn, namespace=NAMESPACE) as client:
        flows = [
            await client.start(fan(bench, options.n - 2)) for _ in range(WARM_UP + options.cancels)
        ]
        for flow in flows:
            began = time.perf_counter()
            await flow.cancel("bench")
            took.append(time.perf_counter() - began)
    if await adapter.flows_unfinished(options.dsn):
        raise RuntimeError("members of a cancelled flow have not ended")
    return milliseconds(took[WARM_UP:])
