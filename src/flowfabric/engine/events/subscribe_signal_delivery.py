"""Every accepted signal, in order and none missing, from now on or from a cursor on."""

from __future__ import annotations

from flowfabric.engine.events.cursor import FROM_NOW
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.signal_events import SignalEvent
from flowfabric.engine.events.subscribe import Hub, Subscription


async def subscribe_signal_delivery(
    hub: Hub,
    cursor: bytes = FROM_NOW,
    filter: EventFilter | None = None,  # noqa: A002  the word of the specification
) -> Subscription[SignalEvent]:
    """Every accepted signal after `cursor`; without a cursor, those from now on."""
    return await hub.subscribe(hub.signals, cursor, filter)
