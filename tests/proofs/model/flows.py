"""Flows are built, cancelled and read, in the model."""

from __future__ import annotations

from uuid import UUID

import msgspec

from flowfabric.engine.flows.add_execution_to_flow import AlreadyMember, MemberAdded
from flowfabric.engine.flows.cancel_flow_header import FlowAlreadyCancelled, FlowCancelAccepted
from flowfabric.engine.flows.create_flow import FlowCreated, FlowExists
from flowfabric.engine.flows.submission import FlowSubmitted, NewFlow
from flowfabric.engine.joins.apply_dependency_to_child import EdgeAlreadyApplied, EdgeApplied
from flowfabric.engine.joins.set_edge_group_policy import JoinPolicySet
from flowfabric.engine.joins.stage_dependency_edge import EdgeStaged
from flowfabric.errors import (
    CycleDetected,
    DependencyAlreadyExists,
    ExecutionAlreadyInFlow,
    ExecutionNotInFlow,
    FlowAlreadyTerminal,
    NotFound,
    SelfReferencingEdge,
    StaleGraphRevision,
    ValidationError,
    invalid_input,
)
from flowfabric.ids import ExecutionId, uuid_partition
from flowfabric.joins import AllOf, JoinPolicy, Quorum
from flowfabric.policy import milliseconds
from flowfabric.states import CancellationPolicy
from tests.proofs.model import dispatch
from tests.proofs.model.moves import execution, refuse_closed
from tests.proofs.model.records import Edge, End, Execution, Flow, Group, World

ENDS = ("completed", "failed", "cancelled", "expired", "skipped")
EVERY_MS = 10_000


def create_flow(world: World, flow_id: UUID) -> FlowCreated | FlowExists:
    if flow_id in world.flows:
        return FlowExists(flow_id=flow_id)
    world.flows[flow_id] = Flow(
        flow_id=flow_id,
        partition_key=uuid_partition(flow_id),
        created_at_ms=world.now_ms,
        last_mutation_at_ms=world.now_ms,
        summary_at_ms=world.now_ms,
    )
    return FlowCreated(flow_id=flow_id)


def _open(world: World, flow_id: UUID) -> Flow:
    if flow_id not in world.flows:
        raise NotFound("flow", flow_id)
    if world.flows[flow_id].state != "open":
        raise FlowAlreadyTerminal(flow_id)
    return world.flows[flow_id]


def _grown(world: World, flow: Flow) -> None:
    flow.last_mutation_at_ms = flow.summary_at_ms = world.now_ms
    flow.summary_state = "open"


def add_execution_to_flow(
    world: World, flow_id: UUID, execution_id: ExecutionId
) -> MemberAdded | AlreadyMember:
    if execution_id.partition_key != uuid_partition(flow_id):
        raise ValidationError("partition_mismatch", str(execution_id))
    flow = _open(world, flow_id)
    if execution_id not in world.executions:
        raise NotFound("execution", execution_id)
    member = world.executions[execution_id]
    if member.flow_id == flow_id:
        return AlreadyMember(execution_id=execution_id, node_count=flow.node_count)
    if member.flow_id is not None:
        raise ExecutionAlreadyInFlow(execution_id, member.flow_id)
    member.flow_id = flow_id
    world.touch(member)
    flow.node_count += 1
    _grown(world, flow)
    return MemberAdded(execution_id=execution_id, new_node_count=flow.node_count)


def _check_member(world: World, flow: Flow, *executions: ExecutionId) -> None:
    for each in executions:
        member = world.executions.get(each)
        if member is None or member.flow_id != flow.flow_id:
            raise ExecutionNotInFlow(each, flow.flow_id)


def stage_dependency_edge(
    world: World,
    flow_id: UUID,
    edge_id: UUID,
    upstream: ExecutionId,
    downstream: ExecutionId,
    *,
    expected_graph_revision: int,
    data_passing_ref: str | None,
) -> EdgeStaged:
    if upstream == downstream:
        raise SelfReferencingEdge(upstream)
    flow = _open(world, flow_id)
    if flow.revision != expected_graph_revision:
        expected, current = expected_graph_revision, flow.revision
        raise StaleGraphRevision(flow_id, expected=expected, current=current)
    _check_member(world, flow, upstream, downstream)
    if upstream in _reached(flow, downstream):
        raise CycleDetected(flow_id, upstream)
    for edge in flow.edges:
        if edge.edge_id == edge_id or (edge.upstream, edge.downstream) == (upstream, downstream):
            raise DependencyAlreadyExists(edge, edge_id)
    group = flow.groups.get(downstream)
    inbound = sum(edge.downstream == downstream for edge in flow.edges)
    if group is not None and group.expected_n is not None and inbound >= group.expected_n:
        raise invalid_input("downstream", str(downstream), "has its edges")
    flow.groups.setdefault(downstream, Group(downstream=downstream))
    flow.edges.append(
        Edge(
            edge_id=edge_id,
            upstream=upstream,
            downstream=downstream,
            data_passing_ref=data_passing_ref,
        )
    )
    _grown(world, flow)
    return EdgeStaged(edge_id=edge_id, new_graph_revision=flow.revision)


def _reached(flow: Flow, start: ExecutionId) -> set[ExecutionId]:
    reached, found = {start}, [start]
    while found:
        at = found.pop()
        beyond = {edge.downstream for edge in flow.edges if edge.upstream == at} - reached
        reached |= beyond
        found.extend(beyond)
    return reached


def apply_dependency_to_child(
    world: World, flow_id: UUID, edge_id: UUID, *, upstream: ExecutionId | None
) -> EdgeApplied | EdgeAlreadyApplied:
    flow = world.flows.get(flow_id)
    edge = next((e for e in flow.edges if e.edge_id == edge_id), None) if flow else None
    if flow is None or edge is None:
        raise NotFound("edge", edge_id)
    if upstream not in (None, edge.upstream):
        raise ValidationError("invalid_dependency", "leads elsewhere")
    if edge.applied:
        return EdgeAlreadyApplied(edge_id=edge_id)
    if flow.state != "open":
        raise FlowAlreadyTerminal(flow_id)
    above, below = world.executions[edge.upstream], world.executions[edge.downstream]
    if below.lifecycle_phase == "terminal":
        raise ValidationError("invalid_dependency", "downstream_terminal")
    group = flow.groups[edge.downstream]
    waits = below.lifecycle_phase == "runnable"
    if waits and isinstance(group.policy, AllOf) and group.state == "satisfied":
        group.state = "pending"
    edge.applied = True
    if waits and group.state == "pending":
        _hold(world, below)
    if above.lifecycle_phase == "terminal":
        last = world.last_end(edge.upstream)
        end = End(last, edge.upstream, above.terminal_outcome, flow_id)
        decides = group.expected_n is None
        dispatch.act(world, dispatch.resolve(world, [end], only=edge, decides=decides))
    dispatch.act(world, dispatch.judge(flow, group))
    return EdgeApplied(edge_id=edge_id, unsatisfied_count=flow.counts(edge.downstream)[3])


def _hold(world: World, member: Execution) -> None:
    if member.eligibility_state == "blocked_by_dependencies":
        return
    if member.eligibility_state == "blocked_by_operator":  # it waits for others once it is let go
        if member.not_before_ms is None:
            member.not_before_ms = world.now_ms
        world.touch(member)
        return
    member.waits("blocked_by_dependencies", "waiting_for_children")
    member.blocking_detail = None
    if member.delay_until_ms is not None:
        member.not_before_ms, member.delay_until_ms = member.delay_until_ms, None
    world.touch(member)


def set_edge_group_policy(
    world: World,
    flow_id: UUID,
    downstream: ExecutionId,
    policy: JoinPolicy,
    *,
    expected_n: int | None,
) -> JoinPolicySet:
    if expected_n is not None and isinstance(policy, Quorum) and policy.k > expected_n:
        raise invalid_input("k", policy.k, "is more than expected")
    flow = _open(world, flow_id)
    _check_member(world, flow, downstream)
    if any(edge.downstream == downstream for edge in flow.edges):
        raise ValidationError("edge_group_policy_already_fixed", str(downstream))
    group = flow.groups.get(downstream)
    if group is not None and (group.policy, group.expected_n) == (policy, expected_n):
        return JoinPolicySet(downstream=downstream, repeated=True)
    group = flow.groups.setdefault(downstream, Group(downstream=downstream))
    group.policy, group.expected_n = policy, expected_n
    return JoinPolicySet(downstream=downstream)


def submit_flow(world: World, new: NewFlow) -> FlowSubmitted:
    """A graph that is sound in itself; what may be wrong is its id, its members' ids, its lanes."""
    done = FlowSubmitted(flow_id=new.flow_id, members=len(new.members), edges=len(new.edges))
    if new.flow_id in world.flows:
        return msgspec.structs.replace(done, repeated=True)
    taken = [each for each in new.members if each.execution_id in world.executions]
    if taken:
        raise invalid_input("execution_id", str(taken[0].execution_id), "exists already")
    refuse_closed(world, (each.lane_id for each in new.members))
    create_flow(world, new.flow_id)
    flow = world.flows[new.flow_id]
    flow.node_count = len(new.members)
    for edge in new.edges:
        flow.edges.append(
            Edge(
                edge_id=None,
                upstream=edge.upstream,
                downstream=edge.downstream,
                data_passing_ref=edge.data_passing_ref,
                applied=True,
            )
        )
    held = {edge.downstream for edge in new.edges}
    for each in held:
        flow.groups[each] = Group(downstream=each, policy=new.policies.get(each, AllOf()))
    for each in new.members:
        world.lanes.setdefault(each.lane_id, "active")
        member = execution(world, each)
        member.flow_id = new.flow_id
        if each.execution_id in held:
            _hold(world, member)
        world.executions[each.execution_id] = member
    return done


def cancel_flow(
    world: World, flow_id: UUID, *, reason: str, policy: str, grace: float, waits: bool
) -> FlowCancelAccepted | FlowAlreadyCancelled:
    """The header, and unless it does not wait the ends that it owes."""
    reason = reason or "flow_cancelled"
    answer = _header(world, flow_id, reason, policy, grace, at_once=waits)
    if waits and not (isinstance(answer, FlowCancelAccepted) and not answer.cancel_pending):
        _end_owed(world, world.flows[flow_id])
        if policy != "cancel_all":
            dispatch.dispatch(world)
        if isinstance(answer, FlowCancelAccepted):
            return msgspec.structs.replace(answer, cancel_pending=0)
    return answer


def _header(
    world: World, flow_id: UUID, reason: str, policy: str, grace: float, *, at_once: bool
) -> FlowCancelAccepted | FlowAlreadyCancelled:
    if policy not in list(CancellationPolicy):
        raise invalid_input("cancellation_policy", policy, "is unknown")
    if flow_id not in world.flows:
        raise NotFound("flow", flow_id)
    flow = world.flows[flow_id]
    members = world.members(flow_id)
    if flow.state != "open":
        return FlowAlreadyCancelled(
            flow_id=flow_id,
            stored_cancellation_policy=CancellationPolicy(flow.cancellation_policy or ""),
            stored_cancel_reason=flow.cancel_reason or "",
            member_execution_ids=sorted(flow.owed) or [each.execution_id for each in members],
        )
    flow.state, flow.cancel_reason, flow.cancellation_policy = "cancelled", reason, policy
    flow.cancelled_at_ms = flow.last_mutation_at_ms = world.now_ms
    if policy == "cancel_all" and at_once:
        ending = [each for each in members if each.lifecycle_phase != "terminal"]
        world.terminalize(ending, "cancelled", reason=reason, by="cancel_flow")
        return _cancelled(flow, [each.execution_id for each in ending], cancel_pending=0)
    targets: list[ExecutionId] = []
    for each in members:
        if policy == "cancel_flow_only" or each.lifecycle_phase == "terminal":
            continue
        each.flow_cancelled = True
        if each.lifecycle_phase == "runnable":
            each.waits("blocked_by_operator", "paused_by_flow_cancel")
            each.resume_pending = False
            each.blocking_detail = each.delay_until_ms = each.not_before_ms = None
            world.touch(each)
        if each.lifecycle_phase == "runnable" or policy == "cancel_all":
            targets.append(each.execution_id)
    flow.owed, flow.owed_after_ms = set(targets), world.now_ms + milliseconds(grace)
    return _cancelled(flow, targets, cancel_pending=len(targets))


def _cancelled(
    flow: Flow, members: list[ExecutionId], *, cancel_pending: int
) -> FlowCancelAccepted:
    return FlowCancelAccepted(
        flow_id=flow.flow_id,
        cancellation_policy=CancellationPolicy(flow.cancellation_policy or ""),
        member_execution_ids=members,
        cancel_pending=cancel_pending,
    )


def _end_owed(world: World, flow: Flow) -> None:
    owed = [world.executions[each] for each in sorted(flow.owed)]
    world.terminalize(owed, "cancelled", reason=flow.cancel_reason, by="cancel_flow")
    flow.owed = set()


def reconcile_cancels(world: World) -> int:
    due = [
        flow for flow in world.flows.values() if flow.owed and flow.owed_after_ms <= world.now_ms
    ]
    for flow in due:
        _end_owed(world, flow)
    return len(due)


# Where a flow stands.


def derived_state(world: World, flow: Flow) -> str:
    """Section 9: from the members, a failure that was got over not counting."""
    members = world.members(flow.flow_id)
    states = [each.public_state for each in members]
    if not states:
        return flow.state
    if all(state in ENDS for state in states):
        return _end(world, flow)
    if "active" in states:
        return "running"
    waits = {"delayed", "rate_limited", "waiting_children", "suspended", "resumable"}
    return "blocked" if waits & set(states) else "open"


def outcome(world: World, flow: Flow) -> str | None:
    """How the flow ends, once nobody runs for whom no join waits."""
    members = world.members(flow.flow_id)
    awaited = {each.upstream for each in flow.edges if each.applied}
    if not members:
        return "cancelled" if flow.state == "cancelled" else None
    if any(e.public_state not in ENDS and e.execution_id not in awaited for e in members):
        return None
    return _end(world, flow)


def _end(world: World, flow: Flow) -> str:
    if flow.state == "cancelled":
        return "cancelled"
    members = world.members(flow.flow_id)
    failures = [e for e in members if e.public_state in ("failed", "cancelled", "expired")]
    absorbed = all(_is_absorbed(world, flow, each) for each in failures)
    due = any(_could_have_run(world, flow, each) for each in members)
    return "failed" if due or not absorbed else "completed"


def _could_have_run(world: World, flow: Flow, member: Execution) -> bool:
    """Was it skipped, although all that it waited for has succeeded since?"""
    if member.public_state != "skipped":
        return False
    above = [world.executions[each.upstream] for each in flow.into(member.execution_id)]
    fed = [e for e in flow.edges if e.upstream == member.execution_id and e.applied]
    done_without = fed and all(flow.groups[each.downstream].state == "satisfied" for each in fed)
    return (
        bool(above)
        and all(each.terminal_outcome == "success" for each in above)
        and not done_without
    )


def _is_absorbed(world: World, flow: Flow, member: Execution) -> bool:
    """Does every way from it lead to a join that was satisfied without it?"""
    fed = [e for e in flow.edges if e.upstream == member.execution_id and e.applied]
    return bool(fed) and all(
        flow.groups[each.downstream].state == "satisfied"
        or (
            world.executions[each.downstream].public_state != "completed"
            and _is_absorbed(world, flow, world.executions[each.downstream])
        )
        for each in fed
    )


def project_unsettled(world: World) -> int:
    old = [
        flow
        for flow in world.flows.values()
        if flow.summary_state in ("open", "running", "blocked")
        and flow.summary_at_ms <= world.now_ms - EVERY_MS
    ]
    for flow in old:
        flow.summary_state, flow.summary_at_ms = derived_state(world, flow), world.now_ms
    return len(old)
