"""Calls back when a lease of a worker process was ended by a decision elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from flowfabric.db.listen import Listener
from flowfabric.db.pool import Pool
from flowfabric.db.signals import subscribed
from flowfabric.db.waiter import Waiter
from flowfabric.engine.lifecycle.signal_holders import holder_topic

_LOOK_AT_REGISTRATION: Final = 3.0


async def watch_leases(
    pool: Pool, listener: Listener, instance: str, on_lost: Callable[[], None]
) -> None:
    """Call `on_lost` when leases of this worker process may have been lost; until cancelled.

    Decisions of this process call it at once, those of others by NOTIFY. Where LISTEN does not
    work the next renewal tells. The registration is left to expire: nothing notifies a worker that
    holds no lease.
    """
    topic = holder_topic(instance)
    with subscribed(topic, on_lost):
        if not listener.enabled:
            await asyncio.Event().wait()
        waiter = Waiter(pool, listener, [topic], name=instance, poll=_LOOK_AT_REGISTRATION)
        while True:
            if await waiter.wait():
                on_lost()
