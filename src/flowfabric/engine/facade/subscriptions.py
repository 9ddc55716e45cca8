"""Events: subscribe to them as they happen, or read the story of one execution."""

from __future__ import annotations

from flowfabric.db.listen import Listener
from flowfabric.db.pool import Pool
from flowfabric.engine.events.completion_events import CompletionEvent
from flowfabric.engine.events.cursor import FROM_NOW
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.history import Occurrence, read_history
from flowfabric.engine.events.lease_events import LeaseEvent
from flowfabric.engine.events.operator_events import OperatorEvent
from flowfabric.engine.events.subscribe import Hub, Subscription
from flowfabric.engine.facade.base import Base
from flowfabric.ids import ExecutionId


class Subscriptions(Base):
    """One reader per outbox and process, whoever subscribes; none while nobody does."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self.listener = Listener(pool.config)
        self.events = Hub(pool, self.listener)

    async def subscribe_completions(
        self,
        cursor: bytes = FROM_NOW,
        filter: EventFilter | None = None,  # noqa: A002  the word of the specification
    ) -> Subscription[CompletionEvent]:
        return await self.events.subscribe_completions(cursor, filter)

    async def subscribe_lease_history(
        self,
        cursor: bytes = FROM_NOW,
        filter: EventFilter | None = None,  # noqa: A002
    ) -> Subscription[LeaseEvent]:
        return await self.events.subscribe_lease_history(cursor, filter)

    async def subscribe_operator_events(
        self,
        cursor: bytes = FROM_NOW,
        filter: EventFilter | None = None,  # noqa: A002
    ) -> Subscription[OperatorEvent]:
        return await self.events.subscribe_operator_events(cursor, filter)

    async def read_history(self, execution_id: ExecutionId) -> list[Occurrence]:
        return await self._run("history", lambda conn: read_history(conn, execution_id))

    async def close(self) -> None:
        """Subscriptions end, and every connection is closed."""
        await self.events.close()
        await self.listener.close()
        await self.pool.close()
