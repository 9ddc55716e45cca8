"""Replays, in the model: what has ended runs again, and what was skipped for it waits again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from flowfabric.engine.operators.replay_execution import Replayed
from flowfabric.engine.operators.replay_flow import ReplayedFlow
from flowfabric.errors import (
    ExecutionNotTerminal,
    FlowAlreadyTerminal,
    LaneNotAccepting,
    MaxReplaysExhausted,
    NotFound,
)
from flowfabric.ids import ExecutionId
from flowfabric.joins import AllOf
from flowfabric.states import PublicState
from tests.engine.flows.model import decision, kind_of
from tests.proofs.model.dispatch import act, feed, judge
from tests.proofs.model.moves import CLOSED
from tests.proofs.model.records import Edge, End, Execution, Flow, World

Named = tuple[list[ExecutionId], list[ExecutionId], list[ExecutionId]]


def named(answer: ReplayedFlow) -> Named:
    """The members that run again, wait again and stay."""
    runs, waits, stay = (
        sorted(each.execution_id for each in some)
        for some in (answer.run_again, answer.wait_again, answer.stay)
    )
    return runs, waits, stay


def replay_execution(world: World, execution_id: ExecutionId, *, downstream: bool) -> Replayed:
    """Rows 31 and 32; the state in the answer is the one that the execution then has."""
    if execution_id not in world.executions:
        raise NotFound("execution", execution_id)
    seen = world.executions[execution_id]
    flow = world.flow_of(seen)
    if flow is not None and flow.state == "cancelled":
        raise FlowAlreadyTerminal(flow.flow_id)
    if seen.lifecycle_phase != "terminal":
        raise ExecutionNotTerminal(execution_id, seen.public_state)
    if not _replays_left(seen):
        raise MaxReplaysExhausted(execution_id, seen.replay_count)
    if world.lanes[seen.lane_id] in CLOSED:
        raise LaneNotAccepting(seen.lane_id, world.lanes[seen.lane_id])
    if flow is None:
        _begin_anew(world, seen)
    else:
        waits = seen.terminal_outcome == "skipped" and execution_id in flow.groups
        even_failed = {execution_id} if waits else set[ExecutionId]()
        below = _skipped_below(world, flow, execution_id) if downstream else []
        if waits and _decision(world, flow, execution_id, None) == "impossible":
            below = _runnable(world, flow, below, set())[1]
        else:
            below = _runnable(world, flow, below, {execution_id})[1]
        members = [seen, *(world.executions[each] for each in below)]
        _restart(world, flow, members, even_failed | {*below}, even_failed)
    return Replayed(execution_id=execution_id, public_state=PublicState(seen.public_state))


def replay_flow(world: World, flow_id: UUID, *, preview: bool) -> Named:
    """What keeps the flow from being completed runs again."""
    if flow_id not in world.flows:
        raise NotFound("flow", flow_id)
    flow = world.flows[flow_id]
    needed = [each for each in world.members(flow_id) if _needed(world, flow, each)]
    able = [each.execution_id for each in needed if _may(world, each)]
    runs, waits = _runnable(world, flow, able, set())
    again = {*runs, *waits}
    at_once = [each for each in waits if _decision(world, flow, each, again) == "satisfied"]
    answer = (
        sorted([*runs, *at_once]),
        sorted({*waits}.difference(at_once)),
        sorted({each.execution_id for each in needed} - again),
    )
    if preview or not again:
        return answer
    if flow.state == "cancelled":
        _open(world, flow)
    flow.last_mutation_at_ms = world.now_ms
    _restart(world, flow, [world.executions[each] for each in sorted(again)], {*waits}, set())
    return answer


def _open(world: World, flow: Flow) -> None:
    marked = [
        each
        for each in world.members(flow.flow_id)
        if each.flow_cancelled and each.lifecycle_phase != "terminal"
    ]
    parked = sum(each.blocking_reason == "paused_by_flow_cancel" for each in marked)
    if flow.owed or parked:
        raise FlowAlreadyTerminal(flow.flow_id, len(flow.owed) or parked)
    for each in marked:
        each.flow_cancelled = False
    flow.state, flow.cancelled_at_ms = "open", None
    flow.cancel_reason = flow.cancellation_policy = None


def _may(world: World, seen: Execution) -> bool:
    return _replays_left(seen) and world.lanes[seen.lane_id] not in CLOSED


def _replays_left(seen: Execution) -> bool:
    return seen.replay_count < (10 if seen.policy is None else seen.policy.max_replay_count)


def _out_of(flow: Flow, upstream: ExecutionId) -> list[Edge]:
    return [each for each in flow.edges if each.upstream == upstream and each.applied]


def _needed(world: World, flow: Flow, seen: Execution) -> bool:
    """Did it end without success, and did not every way from it end at a satisfied join?"""
    if seen.lifecycle_phase != "terminal" or seen.terminal_outcome == "success":
        return False
    ways = _out_of(flow, seen.execution_id)
    open_ways = [each for each in ways if flow.groups[each.downstream].state != "satisfied"]
    below = [world.executions[each.downstream] for each in open_ways]
    return not ways or any(
        each.lifecycle_phase != "terminal" or _needed(world, flow, each) for each in below
    )


def _skipped_below(world: World, flow: Flow, top: ExecutionId) -> list[ExecutionId]:
    found: set[ExecutionId] = set()
    queue = [top]
    while queue:
        for edge in _out_of(flow, queue.pop()):
            skipped = world.executions[edge.downstream].terminal_outcome == "skipped"
            if skipped and edge.downstream not in found:
                found.add(edge.downstream)
                queue.append(edge.downstream)
    return sorted(each for each in found if _may(world, world.executions[each]))


def _decision(
    world: World, flow: Flow, member: ExecutionId, again: Collection[ExecutionId] | None
) -> str:
    """What the join comes to, by the upstreams as they are; None: all run again that can."""
    s = f = 0
    edges = flow.into(member)
    for edge in edges:
        upstream = world.executions[edge.upstream]
        ended = upstream.lifecycle_phase == "terminal"
        if edge.resolution == "satisfied" or upstream.terminal_outcome == "success":
            s += 1
        elif ended and again is not None and edge.upstream not in again:
            f += 1
    kind, k, _ = kind_of(flow.groups[member].policy)
    expected = flow.groups[member].expected_n
    return decision(kind, k, s, f, 0, len(edges) - s - f, expected_n=expected)


def _runnable(
    world: World, flow: Flow, able: Sequence[ExecutionId], running: set[ExecutionId]
) -> tuple[list[ExecutionId], list[ExecutionId]]:
    """Those that run at once and those that wait, if all of these run again."""
    runs: list[ExecutionId] = []
    waits: list[ExecutionId] = []
    while True:
        before = len(runs) + len(waits)
        for each in able:
            if each in runs or each in waits:
                continue
            group = flow.groups.get(each)
            if group is None or not flow.into(each) or group.state == "satisfied":
                runs.append(each)
            elif _decision(world, flow, each, {*running, *runs, *waits}) != "impossible":
                waits.append(each)
        if len(runs) + len(waits) == before:
            return runs, waits


def _restart(
    world: World,
    flow: Flow,
    members: Sequence[Execution],
    waiting: set[ExecutionId],
    even_failed: set[ExecutionId],
) -> None:
    flow.summary_state, flow.summary_at_ms = "open", world.now_ms
    lost = {each.execution_id for each in members if each.terminal_outcome != "success"}
    for each in members:
        _begin_anew(world, each)
        if each.execution_id in waiting:
            each.waits("blocked_by_dependencies", "waiting_for_children")
    for edge in flow.edges:
        pending = edge.applied and flow.groups[edge.downstream].state == "pending"
        if edge.upstream in lost and pending and edge.resolution != "satisfied":
            _unresolve(world, edge)
    for each in members:
        if each.execution_id not in waiting:
            _feed_again(world, flow, each)
    for each in sorted(waiting):
        _reset(world, flow, each, even_failed=each in even_failed)
        _feed_again(world, flow, world.executions[each])
    act(world, [each for name in sorted(waiting) for each in judge(flow, flow.groups[name])])


def _unresolve(world: World, edge: Edge) -> None:
    edge.resolution, edge.resolved_outcome, edge.resolved_by = "unresolved", None, 0
    edge.min_event = world.last_end(edge.upstream)


def _reset(world: World, flow: Flow, member: ExecutionId, *, even_failed: bool) -> None:
    for edge in flow.into(member):
        upstream = world.executions[edge.upstream]
        if upstream.lifecycle_phase != "terminal":
            if edge.resolution != "satisfied":
                _unresolve(world, edge)
        elif edge.resolution == "impossible" and upstream.terminal_outcome == "success":
            last = world.last_end(edge.upstream)
            edge.resolve(End(last, edge.upstream, "success", flow.flow_id))
        elif edge.resolution == "impossible" and even_failed:
            _unresolve(world, edge)
    group = flow.groups[member]
    group.state, group.siblings, group.losers = "pending", [], []


def _feed_again(world: World, flow: Flow, member: Execution) -> None:
    """One that never ran is given the results that came after it had ended."""
    group = flow.groups.get(member.execution_id)
    if group is None or member.total_attempt_count:
        return
    good = [each for each in flow.into(member.execution_id) if each.resolution == "satisfied"]
    good.sort(key=lambda each: each.resolved_by)
    if not isinstance(group.policy, AllOf):
        k = kind_of(group.policy)[1] or 1
        good = good[k - 1 : k] if group.state == "satisfied" else []
    for edge in good:
        if edge.data_passing_ref:
            feed(world.executions[edge.upstream], member)


def _begin_anew(world: World, seen: Execution) -> None:
    seen.lifecycle_phase, seen.terminal_outcome = "runnable", "none"
    seen.waits("eligible_now", "waiting_for_worker")
    seen.attempt_state, seen.terminal_at_ms = "pending_replay_attempt", None
    seen.lease_epoch += 1
    seen.replay_count += 1
    seen.entries = {  # sleeps that are not over begin anew
        seq: entry for seq, entry in seen.entries.items() if (entry.due_at_ms or 0) <= world.now_ms
    }
    seen.retry_count = seen.lease_reclaim_count = 0
    seen.failure_reason = seen.failure_category = None
    seen.cancellation_reason = seen.cancelled_by = None
    seen.progress_pct = seen.progress_message = seen.result = None
    seen.overridden, seen.flow_cancelled = None, False
    if seen.deadline_at_ms is not None and seen.is_late(world.now_ms):
        seen.deadline_at_ms += world.now_ms - seen.deadline_from_ms
        seen.deadline_from_ms = world.now_ms
    world.touch(seen)
