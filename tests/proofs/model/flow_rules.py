"""Rules of callers that build flows, and cancel them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.new_flow import NewEdge, NewFlow
from flowfabric.engine.flows.submission import FlowSubmitted
from flowfabric.errors import FlowFabricError
from flowfabric.ids import ExecutionId, uuid_partition
from flowfabric.joins import AnyOf, JoinPolicy, Quorum
from tests.proofs.model import controls, flows, replays
from tests.proofs.model.common import JOINS, LANES, POLICIES, Common, move, some, which

REFS = (None, None, "data")
POLICIES_OF_CANCEL = ("cancel_all", "cancel_pending", "cancel_flow_only", "cancel_it")


class FlowRules(Common):
    """Build a flow piece by piece or at once, and cancel it."""

    @move(number=which)
    def create_flow(self, number: int) -> None:
        flow_id = self.flow(number) if number % 8 == 7 else self.uuid()
        self._ensure(flow_id)

    def _ensure(self, flow_id: UUID) -> None:
        self.both(
            "create_flow",
            lambda engine: engine.create_flow(flow_id, flow_kind="proof"),
            lambda _: flows.create_flow(self.world, flow_id),
        )
        if flow_id not in self.flow_ids:
            self.flow_ids.append(flow_id)

    @move(flow=which, number=which, how=some)
    def add_member(self, flow: int, number: int, how: int) -> None:
        flow_id, member = self.flow(flow), self.execution(number)
        at_home = [e for e in self.ids if e.partition_key == uuid_partition(flow_id)]
        if at_home and how > 2:
            member = self.any_of(at_home, number)
        self.both(
            "add_execution_to_flow",
            lambda engine: engine.add_execution_to_flow(flow_id, member),
            lambda _: flows.add_execution_to_flow(self.world, flow_id, member),
            only=member,
        )

    def _members(self, flow_id: UUID) -> list[ExecutionId]:
        return [each for each in self.ids if self.world.executions[each].flow_id == flow_id]

    def _two(
        self, flow: int, up: int, down: int, how: int
    ) -> tuple[UUID, ExecutionId, ExecutionId]:
        flow_id = self.flow(flow)
        members = self._members(flow_id)
        if len(members) > 1 and how > 2:
            upstream = self.any_of(members, up)
            others = [each for each in members if each != upstream]
            return flow_id, upstream, self.any_of(others, down)
        return flow_id, self.execution(up), self.execution(down)

    @move(flow=which, up=which, down=which, how=some, ref=st.sampled_from(REFS))
    def stage_edge(self, flow: int, up: int, down: int, how: int, ref: str | None) -> None:
        flow_id, upstream, downstream = self._two(flow, up, down, how)
        edge_id = self.uuid()
        if how == 4 and self.edge_ids:
            edge_id = self.edge_ids[up % len(self.edge_ids)][1]
        known = self.world.flows.get(flow_id)
        revision = (known.revision if known else 0) - (how == 5)
        told = self.both(
            "stage_dependency_edge",
            lambda engine: engine.stage_dependency_edge(
                flow_id,
                edge_id,
                upstream,
                downstream,
                expected_graph_revision=revision,
                data_passing_ref=ref,
            ),
            lambda _: flows.stage_dependency_edge(
                self.world,
                flow_id,
                edge_id,
                upstream,
                downstream,
                expected_graph_revision=revision,
                data_passing_ref=ref,
            ),
            upstream=upstream,
            downstream=downstream,
        )
        if not isinstance(told, FlowFabricError):
            self.edge_ids.append((flow_id, edge_id))
            if how > 6:
                self._apply(flow_id, edge_id, None)

    @move(number=which, how=some)
    def apply_edge(self, number: int, how: int) -> None:
        flow_id, edge_id = self.flow(number), self.uuid()
        waiting = [
            (flow.flow_id, edge.edge_id)
            for flow in self.world.flows.values()
            for edge in flow.edges
            if not edge.applied and edge.edge_id is not None
        ]
        if waiting and how > 3:
            flow_id, edge_id = waiting[number % len(waiting)]
        elif self.edge_ids and how:
            flow_id, edge_id = self.edge_ids[number % len(self.edge_ids)]
        self._apply(flow_id, edge_id, self.execution(number) if how in (1, 4) else None)

    def _apply(self, flow_id: UUID, edge_id: UUID, upstream: ExecutionId | None) -> None:
        known = self.world.flows.get(flow_id)
        edge = next((e for e in known.edges if e.edge_id == edge_id), None) if known else None
        ends = {} if edge is None else {"upstream": edge.upstream, "downstream": edge.downstream}
        self.both(
            "apply_dependency_to_child",
            lambda engine: engine.apply_dependency_to_child(flow_id, edge_id, upstream=upstream),
            lambda _: flows.apply_dependency_to_child(
                self.world, flow_id, edge_id, upstream=upstream
            ),
            **ends,
        )

    @move(
        flow=which,
        number=which,
        how=some,
        policy=st.sampled_from(JOINS),
        expected_n=st.sampled_from((None, None, 1, 2)),
    )
    def set_policy(
        self, flow: int, number: int, how: int, policy: JoinPolicy, expected_n: int | None
    ) -> None:
        flow_id, downstream = self.flow(flow), self.execution(number)
        members = self._members(flow_id)
        if members and how > 2:
            downstream = self.any_of(members, number)
        self.both(
            "set_edge_group_policy",
            lambda engine: engine.set_edge_group_policy(
                flow_id, downstream, policy, expected_n=expected_n
            ),
            lambda _: flows.set_edge_group_policy(
                self.world, flow_id, downstream, policy, expected_n=expected_n
            ),
            only=downstream,
        )

    @move(
        many=st.integers(2, 5),
        arrows=st.integers(1, 2**10 - 1),
        join=st.sampled_from(JOINS),
        policy=st.sampled_from(POLICIES),
        lane=st.sampled_from(LANES),
        ref=st.sampled_from(REFS),
        how=some,
    )
    def submit_flow(
        self, many: int, arrows: int, join: JoinPolicy, lane: str, how: int, **fields: Any
    ) -> None:
        flow_id = self.flow(how) if how == 0 else self.uuid()
        home = uuid_partition(flow_id)
        delay = 6 if how == 5 else None
        members = [
            self.new(home, lane_id=lane, policy=fields["policy"], delay=delay) for _ in range(many)
        ]
        if how == 1 and self.ids and self.ids[0].partition_key == home:
            members[0] = self.new(execution_id=self.ids[0], lane_id=lane)
        named = [each.execution_id for each in members]
        pairs = [(up, down) for down in range(many) for up in range(down)]
        edges = [
            NewEdge(upstream=named[up], downstream=named[down], data_passing_ref=fields["ref"])
            for bit, (up, down) in enumerate(pairs)
            if arrows >> bit & 1
        ]
        joins = {each: join for each in {e.downstream for e in edges} if _fits(join, each, edges)}
        new = NewFlow(
            flow_id=flow_id, flow_kind="proof", members=members, edges=edges, policies=joins
        )
        told = self.both(
            "submit_flow",
            lambda engine: engine.submit_flow(new),
            lambda _: flows.submit_flow(self.world, new),
        )
        if isinstance(told, FlowSubmitted) and not told.repeated:
            self.flow_ids.append(flow_id)
            self.ids += named

    @move(lane=st.sampled_from(LANES))
    def lose_a_race(self, lane: str) -> None:
        """Three of four are needed and two are lost; one more ends before its cancel comes.

        Who is listed for that cancel was decided once and for all.
        """
        flow_id = self.uuid()
        members = [self.new(uuid_partition(flow_id), lane_id=lane) for _ in range(5)]
        *upstreams, last = [each.execution_id for each in members]
        new = NewFlow(
            flow_id=flow_id,
            flow_kind="proof",
            members=members,
            edges=[NewEdge(upstream=each, downstream=last) for each in upstreams],
            policies={last: Quorum(3)},
        )
        told = self.both(
            "submit_flow",
            lambda engine: engine.submit_flow(new),
            lambda _: flows.submit_flow(self.world, new),
        )
        if isinstance(told, FlowFabricError):
            return
        self.flow_ids.append(flow_id)
        self.ids += [*upstreams, last]
        for lost in (upstreams[:2], upstreams[2:3]):
            for each in lost:
                self._cancel_member(each)
            self.sweep_once("dispatch_completions")

    def _cancel_member(self, member: ExecutionId) -> None:
        how = {"reason": "no", "source": "operator_override", "lease_epoch": None}
        self.both(
            "cancel_execution",
            lambda engine: engine.cancel_execution(member, **how),
            lambda _: controls.cancel_execution(self.world, member, **how),
            only=member,
        )

    @move(
        number=which,
        policy=st.sampled_from(POLICIES_OF_CANCEL),
        grace=st.sampled_from((0, 4)),
        waits=st.booleans(),
        reason=st.sampled_from(("", "over")),
        then=st.sampled_from((None, "end_parked_members", "dispatch_completions")),
    )
    def cancel_flow(
        self, number: int, policy: str, grace: float, waits: bool, reason: str, then: str | None
    ) -> None:
        flow_id = self.flow(number)
        self.both(
            "cancel_flow",
            lambda engine: engine.cancel_flow(
                flow_id,
                reason=reason,
                policy=policy,
                grace=grace,
                wait=60 if waits else None,
            ),
            lambda _: flows.cancel_flow(
                self.world, flow_id, reason=reason, policy=policy, grace=grace, waits=waits
            ),
        )
        if then is not None:
            self.sweep_once(then)

    @move(number=which, preview=some, then=st.sampled_from((None, "dispatch_completions")))
    def replay_flow(self, number: int, preview: int, then: str | None) -> None:
        flow_id, only_look = self.flow(number), preview == 0

        async def ask(engine: Engine) -> replays.Named:
            return replays.named(await engine.replay_flow(flow_id, preview=only_look))

        self.both(
            "replay_flow",
            ask,
            lambda _: replays.replay_flow(self.world, flow_id, preview=only_look),
        )
        if then is not None:
            self.sweep_once(then)


def _fits(join: JoinPolicy, downstream: ExecutionId, edges: list[NewEdge]) -> bool:
    inbound = sum(each.downstream == downstream for each in edges)
    return isinstance(join, AnyOf) or (isinstance(join, Quorum) and join.k <= inbound)
