"""Waits for flows: one query serves all flows that a client waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias
from uuid import UUID

from flowfabric.client.outcome_waiter import OutcomeWaiter
from flowfabric.engine.engine import Engine
from flowfabric.states import DerivedFlowState

FlowWaiter: TypeAlias = OutcomeWaiter[UUID, DerivedFlowState | None]
"""Answers the state of a flow that has settled; None for a flow that does not exist."""

_REST: Final = 4.0
"""The state of a flow is counted from all its members. Every end of an execution may wake this
client, so the pauses grow with the flow: counting takes at most a fifth of the time."""


def flow_waiter(engine: Engine) -> FlowWaiter:
    """Waits for flows to settle, or to be deleted."""

    async def read(flow_ids: Sequence[UUID]) -> dict[UUID, DerivedFlowState | None]:
        states = await engine.read_flow_states(flow_ids)
        found = {flow_id: states.get(flow_id) for flow_id in flow_ids}
        return {
            flow_id: state for flow_id, state in found.items() if state is None or state.is_settled
        }

    return OutcomeWaiter(engine, read, rest=_REST)
