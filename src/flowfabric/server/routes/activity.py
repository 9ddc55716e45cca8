"""How much work ended, how long it waited and how long it ran."""

from __future__ import annotations

from typing import Final

from flowfabric.engine.activity.read_activity import Activity
from flowfabric.server.call import ApiCall
from flowfabric.server.pages import NamespaceQuery
from flowfabric.server.table import Route, route
from flowfabric.states import Scope


class ActivityQuery(NamespaceQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which work, in the last `window` seconds, in at most so many steps."""

    lane: str | None = None
    kind: str | None = None
    window: float = 3600.0
    steps: int = 60


async def read_activity(call: ApiCall, query: ActivityQuery) -> Activity:
    """What ended over time: counts by outcome, and how long it waited and ran."""
    return await call.engine.read_activity(
        window=query.window,
        steps=query.steps,
        namespace=call.only(query.namespace),
        lane_id=query.lane,
        execution_kind=query.kind,
    )


ROUTES: Final[tuple[Route, ...]] = (
    route(
        "GET",
        "/v1/activity",
        read_activity,
        scope=Scope.READ,
        query=ActivityQuery,
        answers={200: Activity},
    ),
)
