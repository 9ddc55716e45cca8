"""Operations on flows, and what is right when one is called again."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from flowfabric import Client, Flow
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.add_execution_to_flow import AlreadyMember
from flowfabric.engine.flows.cancel_flow_header import FlowAlreadyCancelled
from flowfabric.engine.flows.create_flow import FlowExists
from flowfabric.engine.flows.submission import NewFlow
from flowfabric.engine.joins.apply_dependency_to_child import EdgeAlreadyApplied
from flowfabric.engine.joins.set_edge_group_policy import JoinPolicySet
from flowfabric.errors import (
    DependencyAlreadyExists,
    StaleGraphRevision,
)
from flowfabric.joins import AnyOf
from flowfabric.states import OperatorEventType
from tests.proofs.lost_ack import subjects
from tests.proofs.lost_ack.executions import job
from tests.proofs.lost_ack.operation import (
    Operation,
    of,
    rows,
    told,
)


async def _stage(engine: Engine, flow: NewFlow) -> Any:
    """As a caller does who was refused: look at the graph again, and ask again."""
    upstream, downstream = (each.execution_id for each in flow.members)
    edge_id, revision = UUID(int=flow.flow_id.int ^ 1), 2
    for _ in range(2):
        try:
            return await engine.stage_dependency_edge(
                flow.flow_id, edge_id, upstream, downstream, expected_graph_revision=revision
            )
        except StaleGraphRevision as error:
            revision = error.current
        except DependencyAlreadyExists as error:
            return error.existing
    return None


def _is_the_edge(answer: Any, flow: NewFlow) -> bool:
    upstream, downstream = (each.execution_id for each in flow.members)
    found = (answer.edge_id, answer.upstream, answer.downstream)
    return found == (UUID(int=flow.flow_id.int ^ 1), upstream, downstream)


async def _with_a_cancelled_member(engine: Engine, number: int) -> Any:
    made = await subjects.submitted(engine, number)
    await engine.cancel_executions([flow.members[0].execution_id for flow in made], reason="no")
    return made


async def _start(engine: Engine, number: int) -> Any:
    flow = Flow("pipeline")
    flow.add(job.call()).after(flow.add(job.call()))
    return await Client(engine).start(flow)


OF_FLOWS: Final = (
    Operation(
        name="create_flow",
        begin=subjects.ids,
        call=lambda engine, flow_id: engine.create_flow(flow_id, flow_kind="pipeline"),
        right=of(FlowExists),
        effects=rows("flow_core"),
    ),
    Operation(
        name="add_execution_to_flow",
        begin=subjects.strangers,
        call=lambda engine, pair: engine.add_execution_to_flow(*pair),
        right=of(AlreadyMember),
        effects="SELECT sum(node_count) FROM ff.flow_core",
    ),
    Operation(
        name="set_edge_group_policy",
        begin=subjects.members,
        call=lambda engine, pair: engine.set_edge_group_policy(pair[0], pair[1], AnyOf()),
        right=lambda answer, _: isinstance(answer, JoinPolicySet) and answer.repeated,
        effects=rows("edge_group"),
    ),
    Operation(  # stale revision, then the edge that was meant (flows.md 4.3)
        name="stage_dependency_edge",
        begin=subjects.submitted,
        call=_stage,
        right=_is_the_edge,
        effects="SELECT sum(edge_count) FROM ff.flow_core",
    ),
    Operation(
        name="apply_dependency_to_child",
        begin=subjects.staged,
        call=lambda engine, edge: engine.apply_dependency_to_child(*edge),
        right=of(EdgeAlreadyApplied),
        effects="SELECT sum(running_count) FROM ff.edge_group",
    ),
    Operation(
        name="set_flow_tag",
        begin=subjects.submitted,
        call=lambda engine, flow: engine.set_flow_tag(flow.flow_id, "proof.cut", "1"),
        right=lambda answer, _: answer is None,
        effects=rows("flow_core", "tags <> '{}'"),
        writes=True,
    ),
    Operation(
        name="submit_flow",
        begin=subjects.flows,
        call=lambda engine, flow: engine.submit_flow(flow),
        right=lambda answer, _: answer.repeated,
        effects=rows("exec_core"),
        each=2,
    ),
    Operation(
        name="client.start",
        begin=subjects.numbers,
        call=_start,
        right=lambda handle, _: handle is not None,
        effects=rows("flow_core"),
        repeats=True,
    ),
    Operation(
        name="cancel_flow",
        begin=subjects.submitted,
        call=lambda engine, flow: engine.cancel_flow(flow.flow_id, reason="no"),
        right=of(FlowAlreadyCancelled),
        effects=told(OperatorEventType.FLOW_CANCEL_REQUESTED),
    ),
    Operation(  # the repeat finds nothing left to do
        name="replay_flow",
        begin=_with_a_cancelled_member,
        call=lambda engine, flow: engine.replay_flow(flow.flow_id),
        right=lambda answer, _: not answer.run_again and not answer.wait_again,
        effects=told(OperatorEventType.FLOW_REPLAYED),
    ),
    Operation(  # cut after the header or after the members: the repeat ends what is left
        name="cancel_flow of what waits",
        begin=subjects.submitted,
        call=lambda engine, flow: engine.cancel_flow(
            flow.flow_id, reason="no", policy="cancel_pending"
        ),
        right=of(FlowAlreadyCancelled),
        effects=told(OperatorEventType.FLOW_CANCEL_REQUESTED),
        writes=True,
        commits=2,
    ),
)
