"""What the reads of the engine are to say, in the model."""

from __future__ import annotations

from uuid import UUID

from flowfabric.engine.executions.describe_execution import (
    CurrentAttempt,
    CurrentLease,
    CurrentSuspension,
    ExecutionSnapshot,
)
from flowfabric.engine.flows.describe_flow import EdgeGroupSnapshot, FlowSnapshot, MemberCounts
from flowfabric.ids import ExecutionId, attempt_id, member_group_id
from flowfabric.instants import instant
from flowfabric.states import (
    BlockingReason,
    CancellationPolicy,
    DerivedFlowState,
    FlowState,
    GroupState,
    SuspensionReason,
    TimeoutBehavior,
    WaitsAs,
)
from tests.proofs.model.flows import derived_state, outcome
from tests.proofs.model.records import NAMESPACE, Execution, Flow, Group, World


def describe_execution(world: World, execution_id: ExecutionId) -> ExecutionSnapshot | None:
    each = world.executions.get(execution_id)
    if each is None:
        return None
    blocked = None if each.blocking_reason == "none" else BlockingReason(each.blocking_reason)
    return ExecutionSnapshot(
        execution_id=execution_id,
        flow_id=each.flow_id,
        namespace=NAMESPACE,
        lane_id=each.lane_id,
        execution_kind=each.execution_kind,
        required_capabilities=list(each.required_capabilities),
        priority=each.priority,
        public_state=each.state,
        blocking_reason=blocked,
        blocking_detail=each.blocking_detail,
        current_attempt=_attempt(each),
        current_lease=_lease(each),
        current_suspension=_suspension(each),
        total_attempt_count=each.total_attempt_count,
        retry_count=each.retry_count,
        lease_reclaim_count=each.lease_reclaim_count,
        infra_release_count=0,
        created_at=instant(each.created_at_ms),
        started_at=instant(each.started_at_ms),
        terminal_at=instant(each.terminal_at_ms),
        delay_until=instant(each.delay_until_ms),
        deadline_at=instant(each.deadline_at_ms),
        last_mutation_at=instant(each.last_mutation_at_ms),
        progress_pct=each.progress_pct,
        progress_message=each.progress_message,
        failure_reason=each.failure_reason,
        failure_category=each.failure_category,
        cancellation_reason=each.cancellation_reason,
        cancelled_by=each.cancelled_by,
        idempotency_key=each.idempotency_key,
        creator_identity=None,
        tags={},
    )


def _attempt(each: Execution) -> CurrentAttempt | None:
    if each.total_attempt_count == 0 or each.attempt_state == "pending_retry_attempt":
        return None
    index = each.attempt_index
    return CurrentAttempt(attempt_id=attempt_id(each.execution_id, index), attempt_index=index)


def _lease(each: Execution) -> CurrentLease | None:
    if each.lease_id is None or each.worker_id is None or each.worker_instance_id is None:
        return None
    return CurrentLease(
        lease_id=each.lease_id,
        lease_epoch=each.lease_epoch,
        worker_id=each.worker_id,
        worker_instance_id=each.worker_instance_id,
        expires_at=instant(each.lease_expires_at_ms or 0),
        attempt_index=each.attempt_index,
    )


def _suspension(each: Execution) -> CurrentSuspension | None:
    open_ = each.suspension
    if open_ is None or open_.closed_at_ms is not None:
        return None
    return CurrentSuspension(
        suspension_id=open_.suspension_id,
        reason=SuspensionReason(open_.reason_code),
        suspended_at=instant(open_.suspended_at_ms),
        timeout_at=instant(open_.timeout_at_ms),
        timeout_behavior=TimeoutBehavior(open_.behavior),
        awaits_signals=list(open_.awaits),
    )


def describe_flow(world: World, flow_id: UUID) -> FlowSnapshot | None:
    flow = world.flows.get(flow_id)
    if flow is None:
        return None
    policy, ends_as = flow.cancellation_policy, outcome(world, flow)
    groups = sorted(flow.groups.values(), key=lambda each: each.downstream.uuid)
    return FlowSnapshot(
        flow_id=flow_id,
        flow_kind="proof",
        namespace=NAMESPACE,
        public_flow_state=FlowState(flow.state),
        derived_state=DerivedFlowState(derived_state(world, flow)),
        outcome=None if ends_as is None else DerivedFlowState(ends_as),
        graph_revision=flow.revision,
        node_count=flow.node_count,
        edge_count=len(flow.edges),
        created_at=instant(flow.created_at_ms),
        last_mutation_at=instant(flow.last_mutation_at_ms),
        cancelled_at=instant(flow.cancelled_at_ms),
        cancel_reason=flow.cancel_reason,
        cancellation_policy=None if policy is None else CancellationPolicy(policy),
        tags={},
        members=_members(world, flow_id),
        edge_groups=[_group(flow, each) for each in groups],
    )


def _members(world: World, flow_id: UUID) -> MemberCounts:
    states = [each.public_state for each in world.members(flow_id)]
    states = ["suspended" if each == "resumable" else each for each in states]
    counted = {
        name: states.count(name) for name in MemberCounts.__struct_fields__ if name != "total"
    }
    return MemberCounts(total=len(states), **counted)


def _group(flow: Flow, group: Group) -> EdgeGroupSnapshot:
    succeeded, failed, skipped, running = flow.counts(group.downstream)
    return EdgeGroupSnapshot(
        group_id=member_group_id(group.downstream),
        downstream_execution_id=group.downstream,
        waits_as=WaitsAs.MEMBER,
        policy=group.policy,
        total_deps=succeeded + failed + skipped + running,
        satisfied_count=succeeded,
        failed_count=failed,
        skipped_count=skipped,
        running_count=running,
        group_state=GroupState(group.state),
    )
