"""Waits for flows: one query serves all flows that a client waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

from flowfabric.client.outcome_waiter import OutcomeWaiter
from flowfabric.states import DerivedFlowState

if TYPE_CHECKING:
    from flowfabric.remote.engine_like import EngineLike

FlowWaiter: TypeAlias = OutcomeWaiter[UUID, DerivedFlowState | None]
"""Answers the outcome of a flow; None for a flow that does not exist."""

_REST: Final = 4.0
"""The outcome of a flow follows from its members. Every end of an execution may wake this client,
so the pauses grow with the flow: reading takes at most a fifth of the time."""


def flow_waiter(engine: EngineLike) -> FlowWaiter:
    """Waits until nothing that flows need is left to run, or until they are deleted."""

    async def read(flow_ids: Sequence[UUID]) -> dict[UUID, DerivedFlowState | None]:
        outcomes = await engine.read_flow_outcomes(flow_ids)
        return {
            flow_id: outcomes.get(flow_id)
            for flow_id in flow_ids
            if flow_id not in outcomes or outcomes[flow_id] is not None
        }

    return OutcomeWaiter(engine, read, rest=_REST)
