"""How flows ended, as soon as they have."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import msgspec

from flowfabric.server.call import ApiCall
from flowfabric.server.routes.work import many
from flowfabric.server.table import CONTROL, Route, route
from flowfabric.states import DerivedFlowState, Scope


class FlowOutcomesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which flows: answered when one or more have ended, or after `wait` seconds."""

    flow_ids: list[UUID]
    wait: float = 0.0


class FlowOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a flow ended; null while it runs."""

    flow_id: UUID
    outcome: DerivedFlowState | None


class FlowOutcomes(msgspec.Struct, frozen=True, kw_only=True):
    """The flows that exist, and how they ended."""

    items: list[FlowOutcome]


async def read_flow_outcomes(call: ApiCall, body: FlowOutcomesRequest) -> FlowOutcomes:
    """How up to 1,000 flows ended: as soon as one or more have, or no longer exist."""
    many("flow_ids", body.flow_ids)
    found = await call.services.first_flow_outcomes(
        body.flow_ids, call.seconds(body.wait), call.namespaces
    )
    return FlowOutcomes(
        items=[FlowOutcome(flow_id=each, outcome=one) for each, one in found.items()]
    )


ROUTES: Final[tuple[Route, ...]] = (
    route(
        "POST",
        "/v1/flows/outcomes",
        read_flow_outcomes,
        scope=Scope.READ,
        limit=CONTROL,
        body=FlowOutcomesRequest,
        answers={200: FlowOutcomes},
        waits=True,
    ),
)
