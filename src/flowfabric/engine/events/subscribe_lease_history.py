"""Every lease event, in order and none missing, from now on or from a cursor on."""

from __future__ import annotations

from flowfabric.engine.events.cursor import FROM_NOW
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.lease_events import LeaseEvent
from flowfabric.engine.events.subscribe import Hub, Subscription


async def subscribe_lease_history(
    hub: Hub,
    cursor: bytes = FROM_NOW,
    filter: EventFilter | None = None,  # noqa: A002  the word of the specification
) -> Subscription[LeaseEvent]:
    """Every lease event after `cursor`; without a cursor, those from now on."""
    return await hub.subscribe(hub.leases, cursor, filter)
