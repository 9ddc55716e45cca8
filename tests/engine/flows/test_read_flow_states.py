"""The states of the members of one flow, in one row."""

from uuid import uuid4

from flowfabric.engine.engine import Engine
from flowfabric.states import PublicState
from tests.engine.flows.graphs import submitted


async def test_the_states_of_the_members_in_the_order_of_their_list(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b c d")
    await flow.complete("c")
    await flow.claim("d")

    found = await ff_engine.read_flow_states(flow.flow_id)
    described = await ff_engine.describe_flow(flow.flow_id)
    listed = await ff_engine.list_flow_members(flow.flow_id)

    assert found is not None
    assert described is not None
    assert found.graph_revision == described.graph_revision
    assert found.states == [member.public_state for member in listed.members]
    assert {PublicState.COMPLETED, PublicState.ACTIVE} < set(found.states)
    assert await ff_engine.read_flow_states(uuid4()) is None
