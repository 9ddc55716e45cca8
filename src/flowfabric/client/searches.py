"""The executions of one namespace that match, page by page."""

from __future__ import annotations

from datetime import datetime

from flowfabric.client.options import public_state
from flowfabric.client.subscriptions import Subscriptions
from flowfabric.engine.executions.search_executions import Search, SearchPage
from flowfabric.states import PublicState


class Searches(Subscriptions):
    """The part of a client that finds executions."""

    async def search(
        self,
        *,
        lane: str | None = None,
        kind: str | None = None,
        state: PublicState | str | None = None,
        tag: tuple[str, str] | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> SearchPage:
        """One page of the matching executions of this client's namespace, newest first."""
        search = Search(
            namespace=self.namespace,
            lane_id=lane,
            execution_kind=kind,
            public_state=None if state is None else public_state(state),
            tag=tag,
            created_since=since,
            created_before=before,
        )
        return await self.engine.search_executions(search, cursor=cursor, limit=limit)
