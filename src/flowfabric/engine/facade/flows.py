"""Flows: build them, cancel them, read them; and the dispatch that moves them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from flowfabric.db.transaction import transact
from flowfabric.engine.facade.base import Base
from flowfabric.engine.flows.add_execution_to_flow import (
    Added,
    AlreadyMember,
    add_execution_to_flow,
)
from flowfabric.engine.flows.apply_dependency_to_child import (
    AlreadyApplied,
    Applied,
    apply_dependency_to_child,
)
from flowfabric.engine.flows.cancel_flow_header import (
    DEFAULT_GRACE_MS,
    AlreadyTerminal,
    FlowCancelled,
    cancel_flow_header,
)
from flowfabric.engine.flows.create_flow import FlowCreated, FlowExists, create_flow
from flowfabric.engine.flows.describe_flow import FlowSnapshot, describe_flow
from flowfabric.engine.flows.dispatch_completions import dispatch_batch
from flowfabric.engine.flows.edges import EdgeSnapshot, describe_edge, list_edges
from flowfabric.engine.flows.end_cancelled_members import (
    AT_ONCE,
    ack_cancel_member,
    end_cancelled_members,
)
from flowfabric.engine.flows.evaluate_flow_eligibility import (
    FlowEligibility,
    evaluate_flow_eligibility,
)
from flowfabric.engine.flows.flow_tags import get_flow_tag, set_flow_tag
from flowfabric.engine.flows.list_flows import (
    FlowPage,
    MemberPage,
    list_flow_members,
    list_flows,
)
from flowfabric.engine.flows.new_flow import NewFlow
from flowfabric.engine.flows.project_flow_summary import project_flow_summary
from flowfabric.engine.flows.promote_blocked_to_eligible import (
    Promoted,
    promote_blocked_to_eligible,
)
from flowfabric.engine.flows.queue_siblings import GROUPS_AT_ONCE, cancel_siblings
from flowfabric.engine.flows.read_upstream_results import (
    UpstreamResult,
    read_upstream_results,
)
from flowfabric.engine.flows.set_edge_group_policy import PolicySet, set_edge_group_policy
from flowfabric.engine.flows.stage_dependency_edge import KIND, Staged, stage_dependency_edge
from flowfabric.engine.flows.submit_flow import FlowSubmitted, submit_flow, submit_flows
from flowfabric.errors import EngineError, OperationTimeout
from flowfabric.ids import ExecutionId, PartitionKey
from flowfabric.joins import JoinPolicy
from flowfabric.states import CancellationPolicy

MAX_WAIT: Final = 300.0
END_AT_ONCE: Final = 1000
"""Members that end in the transaction which cancels their flow."""


class Flows(Base):
    """Graphs of executions."""

    async def create_flow(
        self,
        flow_id: UUID,
        *,
        flow_kind: str,
        namespace: str = "default",
        tags: Mapping[str, str] | None = None,
    ) -> FlowCreated | FlowExists:
        return await self._run(
            "create_flow",
            lambda conn: create_flow(
                conn,
                flow_id,
                flow_kind=flow_kind,
                namespace=namespace,
                tags=tags,
                partitions=self.partitions,
            ),
        )

    async def add_execution_to_flow(
        self, flow_id: UUID, execution_id: ExecutionId, *, member_name: str | None = None
    ) -> Added | AlreadyMember:
        return await self._transact(
            "add_execution_to_flow",
            lambda conn: add_execution_to_flow(
                conn, flow_id, execution_id, member_name=member_name, partitions=self.partitions
            ),
        )

    async def stage_dependency_edge(
        self,
        flow_id: UUID,
        edge_id: UUID,
        upstream: ExecutionId,
        downstream: ExecutionId,
        *,
        expected_graph_revision: int,
        dependency_kind: str = KIND,
        data_passing_ref: str | None = None,
    ) -> Staged:
        return await self._transact(
            "stage_dependency_edge",
            lambda conn: stage_dependency_edge(
                conn,
                flow_id,
                edge_id,
                upstream,
                downstream,
                expected_graph_revision=expected_graph_revision,
                dependency_kind=dependency_kind,
                data_passing_ref=data_passing_ref,
                partitions=self.partitions,
            ),
        )

    async def apply_dependency_to_child(
        self,
        flow_id: UUID,
        edge_id: UUID,
        *,
        upstream: ExecutionId | None = None,
        downstream: ExecutionId | None = None,
    ) -> Applied | AlreadyApplied:
        return await self._transact(
            "apply_dependency_to_child",
            lambda conn: apply_dependency_to_child(
                conn,
                flow_id,
                edge_id,
                upstream=upstream,
                downstream=downstream,
                partitions=self.partitions,
            ),
        )

    async def set_edge_group_policy(
        self,
        flow_id: UUID,
        downstream: ExecutionId,
        policy: JoinPolicy,
        *,
        expected_n: int | None = None,
    ) -> PolicySet:
        return await self._transact(
            "set_edge_group_policy",
            lambda conn: set_edge_group_policy(
                conn,
                flow_id,
                downstream,
                policy,
                expected_n=expected_n,
                partitions=self.partitions,
            ),
        )

    async def promote_blocked_to_eligible(self, execution_id: ExecutionId) -> Promoted:
        return await self._transact(
            "promote_blocked_to_eligible",
            lambda conn: promote_blocked_to_eligible(conn, execution_id),
        )

    async def submit_flow(self, flow: NewFlow) -> FlowSubmitted:
        return await self._transact(
            "submit_flow", lambda conn: submit_flow(conn, flow, partitions=self.partitions)
        )

    async def submit_flows(self, flows: Sequence[NewFlow]) -> list[FlowSubmitted | EngineError]:
        return await self._transact(
            "submit_flows", lambda conn: submit_flows(conn, flows, partitions=self.partitions)
        )

    async def dispatch(self) -> int:
        """Carry every end of a member across its edges, and cancel who is not needed any more.

        How many ends it were; those that other dispatchers carry are passed over.
        """
        total = 0
        while (done := await self._transact("dispatch_completions", dispatch_batch)).ends:
            total += done.ends
            if done.siblings:
                while await self._transact("cancel_siblings", cancel_siblings) >= GROUPS_AT_ONCE:
                    pass
        return total

    async def cancel_flow(
        self,
        flow_id: UUID,
        *,
        reason: str = "",
        policy: CancellationPolicy | str = CancellationPolicy.CANCEL_ALL,
        grace_ms: int = DEFAULT_GRACE_MS,
        requester: str = "operator",
        wait: float | None = MAX_WAIT,
    ) -> FlowCancelled | AlreadyTerminal:
        """The header, with every member if all are to end and are few, or else these in batches.

        `wait` bounds the time for the members (None: leave them to the reconciler); the flow stays
        cancelled when it runs out and `OperationTimeout` is raised. Where members go on, those that
        depend on the ended ones hear of it at once; where all end, nobody is left to hear of it and
        the sweeps settle the counters.
        """
        header = await self.cancel_flow_header(
            flow_id,
            reason=reason,
            policy=policy,
            grace_ms=grace_ms,
            requester=requester,
            end_at_once=0 if wait is None else END_AT_ONCE,
        )
        if wait is None or (isinstance(header, FlowCancelled) and not header.owed):
            return header
        try:
            async with asyncio.timeout(min(wait, MAX_WAIT)):
                ended = AT_ONCE
                while ended == AT_ONCE:
                    ended = await self._transact(
                        "end_cancelled_members",
                        lambda conn: end_cancelled_members(
                            conn, flow_id, partitions=self.partitions
                        ),
                    )
                if policy != CancellationPolicy.CANCEL_ALL:
                    await self.dispatch()
        except TimeoutError:
            raise OperationTimeout("cancel_flow", wait) from None
        return header

    async def cancel_flow_header(
        self,
        flow_id: UUID,
        *,
        reason: str = "",
        policy: CancellationPolicy | str = CancellationPolicy.CANCEL_ALL,
        grace_ms: int = DEFAULT_GRACE_MS,
        requester: str = "operator",
        end_at_once: int = 0,
    ) -> FlowCancelled | AlreadyTerminal:
        return await self._transact(
            "cancel_flow_header",
            lambda conn: cancel_flow_header(
                conn,
                flow_id,
                reason=reason,
                policy=policy,
                grace_ms=grace_ms,
                requester=requester,
                end_at_once=end_at_once,
                partitions=self.partitions,
            ),
        )

    async def ack_cancel_member(self, flow_id: UUID, execution_id: ExecutionId) -> None:
        await self._transact(
            "ack_cancel_member",
            lambda conn: ack_cancel_member(conn, flow_id, execution_id, partitions=self.partitions),
        )

    # Reads.

    async def describe_flow(self, flow_id: UUID) -> FlowSnapshot | None:
        return await transact(
            self.pool,
            "describe_flow",
            lambda conn: describe_flow(conn, flow_id, partitions=self.partitions),
            isolation="repeatable_read",
        )

    async def list_flows(
        self,
        partition: PartitionKey | None = None,
        *,
        cursor: UUID | None = None,
        limit: int = 100,
        namespace: str | None = None,
    ) -> FlowPage:
        return await self._run(
            "list_flows",
            lambda conn: list_flows(
                conn,
                partition,
                cursor=cursor,
                limit=limit,
                namespace=namespace,
                partitions=self.partitions,
            ),
        )

    async def list_flow_members(
        self, flow_id: UUID, *, cursor: ExecutionId | None = None, limit: int = 1000
    ) -> MemberPage:
        return await self._run(
            "list_flow_members",
            lambda conn: list_flow_members(
                conn, flow_id, cursor=cursor, limit=limit, partitions=self.partitions
            ),
        )

    async def list_edges(
        self,
        flow_id: UUID,
        *,
        outgoing_from: ExecutionId | None = None,
        incoming_to: ExecutionId | None = None,
    ) -> list[EdgeSnapshot]:
        return await self._run(
            "list_edges",
            lambda conn: list_edges(
                conn,
                flow_id,
                outgoing_from=outgoing_from,
                incoming_to=incoming_to,
                partitions=self.partitions,
            ),
        )

    async def describe_edge(self, flow_id: UUID, edge_id: UUID) -> EdgeSnapshot | None:
        return await self._run(
            "describe_edge",
            lambda conn: describe_edge(conn, flow_id, edge_id, partitions=self.partitions),
        )

    async def evaluate_flow_eligibility(self, execution_id: ExecutionId) -> FlowEligibility:
        return await self._run(
            "evaluate_flow_eligibility", lambda conn: evaluate_flow_eligibility(conn, execution_id)
        )

    async def read_upstream_results(self, execution_id: ExecutionId) -> list[UpstreamResult]:
        return await self._run(
            "read_upstream_results", lambda conn: read_upstream_results(conn, execution_id)
        )

    async def project_flow_summary(self, flow_id: UUID) -> bool:
        return await self._transact(
            "project_flow_summary",
            lambda conn: project_flow_summary(conn, flow_id, partitions=self.partitions),
        )

    async def set_flow_tag(self, flow_id: UUID, key: str, value: str) -> None:
        await self._run(
            "set_flow_tag",
            lambda conn: set_flow_tag(conn, flow_id, key, value, partitions=self.partitions),
        )

    async def get_flow_tag(self, flow_id: UUID, key: str) -> str | None:
        return await self._run(
            "get_flow_tag",
            lambda conn: get_flow_tag(conn, flow_id, key, partitions=self.partitions),
        )
