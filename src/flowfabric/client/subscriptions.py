"""The events of one namespace, as they happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowfabric.engine.events.cursor import FROM_NOW
from flowfabric.engine.events.filters import EventFilter

if TYPE_CHECKING:
    from flowfabric.engine.events.completion_events import CompletionEvent
    from flowfabric.engine.events.lease_events import LeaseEvent
    from flowfabric.engine.events.operator_events import OperatorEvent
    from flowfabric.engine.events.signal_events import SignalEvent
    from flowfabric.engine.events.subscribe import Subscription
    from flowfabric.remote.engine_like import EngineLike


class Subscriptions:
    """The part of a client that follows events."""

    engine: EngineLike
    namespace: str

    async def subscribe_completions(
        self, cursor: bytes = FROM_NOW, *, tag: tuple[str, str] | None = None
    ) -> Subscription[CompletionEvent]:
        """Completions of this namespace's executions: new ones, or all after `cursor`."""
        return await self.engine.subscribe_completions(cursor, self._events(tag))

    async def subscribe_lease_history(
        self, cursor: bytes = FROM_NOW, *, tag: tuple[str, str] | None = None
    ) -> Subscription[LeaseEvent]:
        """Lease events of this namespace: acquired, renewed, expired, reclaimed, revoked."""
        return await self.engine.subscribe_lease_history(cursor, self._events(tag))

    async def subscribe_operator_events(
        self, cursor: bytes = FROM_NOW, *, tag: tuple[str, str] | None = None
    ) -> Subscription[OperatorEvent]:
        """Operator actions on this namespace's executions."""
        return await self.engine.subscribe_operator_events(cursor, self._events(tag))

    async def subscribe_signal_delivery(
        self, cursor: bytes = FROM_NOW, *, tag: tuple[str, str] | None = None
    ) -> Subscription[SignalEvent]:
        """Signals to this namespace's executions, and what each did."""
        return await self.engine.subscribe_signal_delivery(cursor, self._events(tag))

    def _events(self, tag: tuple[str, str] | None) -> EventFilter:
        return EventFilter(namespace=self.namespace, tag=tag)
