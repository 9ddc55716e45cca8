"""A whole graph at once: the flow, its members and their edges, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute
from flowfabric.engine.flows.create_flow import FlowExists, create_flow
from flowfabric.engine.lifecycle.create_execution import Duplicate, NewExecution, create_execution
from flowfabric.errors import (
    CycleDetected,
    DependencyAlreadyExists,
    ExecutionNotInFlow,
    SelfReferencingEdge,
    ValidationError,
    invalid_input,
)
from flowfabric.ids import ExecutionId, check_text, new_uuid, uuid_partition
from flowfabric.joins import AllOf, JoinPolicy, Quorum, policy_columns

ADD_EDGES: Final[LiteralString] = """
-- flows.submit_flow: the edges, applied
INSERT INTO ff.edge (
       partition_key, flow_id, edge_id, upstream_eid, downstream_eid, created_at_ms, applied_at_ms,
       edge_state, data_passing_ref)
SELECT %(partition_key)s, %(flow_id)s, given.edge_id, given.upstream, given.downstream,
       ff.now_ms(), ff.now_ms(), 'applied', given.data_passing_ref
  FROM unnest(%(edge_id)s::uuid[], %(upstream)s::uuid[], %(downstream)s::uuid[],
              %(data_passing_ref)s::text[])
       AS given (edge_id, upstream, downstream, data_passing_ref)
"""

ADD_GROUPS: Final[LiteralString] = """
-- flows.submit_flow: what each member waits for
INSERT INTO ff.edge_group (
       partition_key, flow_id, downstream_eid, policy_kind, k, on_satisfied, running_count)
SELECT %(partition_key)s, %(flow_id)s, given.*
  FROM unnest(%(downstream)s::uuid[], %(policy_kind)s::text[], %(k)s::integer[],
              %(on_satisfied)s::text[], %(running_count)s::integer[]) AS given
"""


class NewEdge(msgspec.Struct, frozen=True, kw_only=True):
    """`downstream` waits for `upstream`; with a `data_passing_ref` it is fed its result."""

    upstream: ExecutionId
    downstream: ExecutionId
    data_passing_ref: str | None = None


class NewFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A graph to submit; checked as a whole once it is made.

    Raises `ValidationError` (`partition_mismatch`, `invalid_input`), `ExecutionNotInFlow`,
    `SelfReferencingEdge`, `DependencyAlreadyExists`, `CycleDetected`.
    """

    flow_id: UUID
    flow_kind: str
    members: Sequence[NewExecution]
    edges: Sequence[NewEdge] = ()
    policies: Mapping[ExecutionId, JoinPolicy] = {}
    namespace: str = "default"
    tags: Mapping[str, str] = {}

    def check(self, *, partitions: int = 256) -> NewFlow:
        """The flow, if every member and edge fits."""
        if not self.members:
            raise invalid_input("members", list(self.members), "must not be empty")
        home = uuid_partition(self.flow_id, partitions)
        ids = self._check_members(home)
        inbound = self._check_edges(ids)
        for downstream, policy in self.policies.items():
            if downstream not in ids:
                raise ExecutionNotInFlow(downstream, self.flow_id)
            if isinstance(policy, Quorum) and policy.k > inbound[downstream]:
                raise invalid_input("k", policy.k, f"is more than {downstream} has upstreams")
        self._check_acyclic(ids)
        return self

    def _check_members(self, home: int) -> set[ExecutionId]:
        ids: set[ExecutionId] = set()
        names: set[str] = set()
        for member in self.members:
            execution_id = member.execution_id
            if execution_id.partition_key != home:
                raise ValidationError(
                    "partition_mismatch", f"execution_id {execution_id} is not in {{fp:{home}}}"
                )
            if execution_id in ids:
                raise invalid_input("execution_id", str(execution_id), "is given twice")
            if member.idempotency_key is not None:
                raise invalid_input(
                    "idempotency_key", member.idempotency_key, "cannot be given to a member"
                )
            if member.namespace != self.namespace:
                raise invalid_input("namespace", member.namespace, f"is not {self.namespace!r}")
            if member.member_name is not None:
                check_text(member.member_name, field="member_name")
                if member.member_name in names:
                    raise invalid_input("member_name", member.member_name, "is given twice")
                names.add(member.member_name)
            ids.add(execution_id)
        return ids

    def _check_edges(self, ids: set[ExecutionId]) -> Counter[ExecutionId]:
        inbound: Counter[ExecutionId] = Counter()
        pairs: set[tuple[ExecutionId, ExecutionId]] = set()
        for edge in self.edges:
            if edge.upstream == edge.downstream:
                raise SelfReferencingEdge(edge.upstream)
            for end in (edge.upstream, edge.downstream):
                if end not in ids:
                    raise ExecutionNotInFlow(end, self.flow_id)
            if (edge.upstream, edge.downstream) in pairs:
                raise DependencyAlreadyExists(edge, edge.downstream.uuid)
            pairs.add((edge.upstream, edge.downstream))
            inbound[edge.downstream] += 1
        return inbound

    def _check_acyclic(self, ids: set[ExecutionId]) -> None:
        graph: dict[ExecutionId, list[ExecutionId]] = {each: [] for each in ids}
        for edge in self.edges:
            graph[edge.downstream].append(edge.upstream)
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            raise CycleDetected(self.flow_id, error.args[1][0]) from None


class FlowSubmitted(msgspec.Struct, frozen=True, kw_only=True):
    """The whole graph exists; `repeated` when it had been submitted before this call."""

    flow_id: UUID
    members: int
    edges: int
    repeated: bool = False


async def submit_flow(conn: Connection, flow: NewFlow, *, partitions: int = 256) -> FlowSubmitted:
    """The flow is there with all members and edges; needs a transaction.

    Members that wait for others are not claimable before those have ended well. The same flow id
    again changes nothing. Raises what `NewFlow.check` raises, `LaneNotAccepting`, and
    `ValidationError` where a member's id is taken.
    """
    flow.check(partitions=partitions)
    home = uuid_partition(flow.flow_id, partitions)
    done = FlowSubmitted(flow_id=flow.flow_id, members=len(flow.members), edges=len(flow.edges))
    made = await create_flow(
        conn,
        flow.flow_id,
        flow_kind=flow.flow_kind,
        namespace=flow.namespace,
        tags=flow.tags,
        partitions=partitions,
        node_count=len(flow.members),
        edge_count=len(flow.edges),
    )
    if isinstance(made, FlowExists):
        return msgspec.structs.replace(done, repeated=True)
    inbound = Counter(edge.downstream for edge in flow.edges)
    members = [
        msgspec.structs.replace(
            member, flow_id=flow.flow_id, hold=True if inbound[member.execution_id] else None
        )
        for member in flow.members
    ]
    answers = await create_execution(conn, members, partitions=partitions)
    taken = next((each for each in answers if isinstance(each, Duplicate)), None)
    if taken is not None:
        raise invalid_input("execution_id", str(taken.execution_id), "exists already")
    where = {"partition_key": home, "flow_id": flow.flow_id}
    if flow.edges:
        await execute(
            conn,
            ADD_EDGES,
            edge_id=[new_uuid() for _ in flow.edges],
            upstream=[edge.upstream.uuid for edge in flow.edges],
            downstream=[edge.downstream.uuid for edge in flow.edges],
            data_passing_ref=[edge.data_passing_ref for edge in flow.edges],
            **where,
        )
        columns = [
            (downstream.uuid, *policy_columns(flow.policies.get(downstream, AllOf())), many)
            for downstream, many in inbound.items()
        ]
        names = ("downstream", "policy_kind", "k", "on_satisfied", "running_count")
        stored = dict(zip(names, map(list, zip(*columns, strict=True)), strict=True))
        await execute(conn, ADD_GROUPS, **where, **stored)
    return done
