"""Calls back when a lease of a worker process was ended by a decision elsewhere."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flowfabric.db.listen import Listener
from flowfabric.db.pool import Pool
from flowfabric.db.signals import subscribed
from flowfabric.db.waiter import Waiter
from flowfabric.engine.lifecycle.signal_holders import holder_topic
from flowfabric.errors import FlowFabricError

if TYPE_CHECKING:
    from flowfabric.remote.engine import RemoteEngine

log: Final = logging.getLogger("flowfabric.worker")
_LOOK_AT_REGISTRATION: Final = 3.0
_WAIT: Final = 20.0
"""Seconds that a server waits before it answers that nothing happened."""


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


async def watch_leases_at(engine: RemoteEngine, instance: str, on_lost: Callable[[], None]) -> None:
    """The same at a server, which answers when it was notified."""
    with subscribed(holder_topic(instance), on_lost):
        while True:
            try:
                if await engine.watch_leases(instance, _WAIT):
                    on_lost()
            except FlowFabricError as error:
                log.debug("leases of %s are not watched: %s", instance, error)
                await asyncio.sleep(random.uniform(0.5, 1.0))
