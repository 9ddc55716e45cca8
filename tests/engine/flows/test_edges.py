"""The edges of a flow, one or many."""

from uuid import uuid4

from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.edge import EdgeSnapshot
from flowfabric.ids import ExecutionId, member_group_id
from flowfabric.states import EdgeResolution, EdgeState, TerminalOutcome, WaitsAs
from flowfabric.testing import Clock
from tests.engine.flows.graphs import empty, flow_beside, minted, submitted


async def test_an_edge_through_its_life(ff_engine: Engine, clock: Clock) -> None:
    flow = await empty(ff_engine, "a", "b")
    created_at = await clock.now()
    edge_id = await flow.stage("a>b", ref="$.x")
    staged = EdgeSnapshot(
        edge_id=edge_id,
        flow_id=flow.flow_id,
        upstream=flow["a"],
        downstream=flow["b"],
        group_id=member_group_id(flow["b"]),
        waits_as=WaitsAs.MEMBER,
        dependency_kind="success_only",
        satisfaction_condition="all_required",
        data_passing_ref="$.x",
        edge_state=EdgeState.PENDING,
        created_at=created_at,
        created_by="engine",
        resolution=EdgeResolution.UNRESOLVED,
        resolved_outcome=None,
    )
    assert await ff_engine.describe_edge(flow.flow_id, edge_id) == staged

    await clock.advance(5)
    await flow.apply("a>b")
    found = await ff_engine.describe_edge(flow.flow_id, edge_id)
    assert found is not None
    assert (found.edge_state, found.created_at) == (EdgeState.APPLIED, created_at)

    await flow.end("a", "E")
    await flow.carry_all()
    found = await ff_engine.describe_edge(flow.flow_id, edge_id)
    assert found is not None
    assert found.resolution is EdgeResolution.IMPOSSIBLE
    assert found.resolved_outcome is TerminalOutcome.EXPIRED


async def test_no_reference_and_an_empty_one_read_alike(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "b", "c")
    for arrow, ref in (("a>b", ""), ("a>c", None)):
        edge_id = await flow.stage(arrow, ref=ref)
        found = await ff_engine.describe_edge(flow.flow_id, edge_id)
        assert found is not None
        assert found.data_passing_ref is None


async def test_an_edge_of_another_flow_is_none(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "b")
    edge_id = await flow.stage("a>b")
    other = await empty(ff_engine, flow_id=flow_beside(flow.flow_id))

    assert await ff_engine.describe_edge(other.flow_id, edge_id) is None
    assert await ff_engine.describe_edge(flow.flow_id, uuid4()) is None
    assert await ff_engine.describe_edge(uuid4(), edge_id) is None


async def test_the_edges_of_a_flow_by_id_and_by_end(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b a>c b>d c>d")
    await submitted(ff_engine, "x>y", flow_id=flow_beside(flow.flow_id))

    async def listed(
        outgoing_from: ExecutionId | None = None, incoming_to: ExecutionId | None = None
    ) -> set[str]:
        found = await ff_engine.list_edges(
            flow.flow_id, outgoing_from=outgoing_from, incoming_to=incoming_to
        )
        assert [edge.edge_id for edge in found] == sorted(edge.edge_id for edge in found)
        return {
            ">".join(flow.named([edge.upstream]) + flow.named([edge.downstream])) for edge in found
        }

    assert await listed() == {"a>b", "a>c", "b>d", "c>d"}
    assert await listed(outgoing_from=flow["a"]) == {"a>b", "a>c"}
    assert await listed(incoming_to=flow["d"]) == {"b>d", "c>d"}
    assert await listed(outgoing_from=flow["b"], incoming_to=flow["d"]) == {"b>d"}
    assert await listed(outgoing_from=flow["d"]) == set()
    assert await listed(incoming_to=minted(flow.flow_id)) == set()
    assert await ff_engine.list_edges(uuid4()) == []
