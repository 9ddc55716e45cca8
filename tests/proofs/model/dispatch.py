"""Ends travel along edges, in the model: sections 5 to 7 and 12 of the flows' contract."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from flowfabric.ids import ExecutionId
from flowfabric.joins import AllOf
from flowfabric.states import SiblingCancelReason
from tests.engine.flows.model import cancels, kind_of
from tests.proofs.model.records import Edge, End, Execution, Flow, Group, World

REASON = {
    "satisfied": SiblingCancelReason.SIBLING_QUORUM_SATISFIED.value,
    "impossible": SiblingCancelReason.SIBLING_QUORUM_IMPOSSIBLE.value,
}


class Decided(msgspec.Struct):
    """A group that came to something, and whose results its member is fed."""

    flow: Flow
    group: Group
    sources: list[Edge]


def carry(world: World) -> tuple[int, bool]:
    """One batch: every end that no edge has heard of; how many, and are siblings unneeded?"""
    ends = [end for end in world.ends if end.flow_id is not None and not end.dispatched]
    unneeded = act(world, resolve(world, ends))
    for end in ends:
        end.dispatched = True
    return len(ends), unneeded


def carry_all(world: World) -> int:
    """The sweep: batch after batch, also the ends of the skipped; siblings are another's work."""
    total = 0
    while carried := carry(world)[0]:
        total += carried
    return total


def dispatch(world: World) -> int:
    """Batch after batch until nothing is left to tell."""
    total = 0
    while (done := carry(world))[0]:
        total += done[0]
        if done[1]:
            cancel_siblings(world)
    return total


def resolve(
    world: World, ends: Sequence[End], *, only: Edge | None = None, decides: bool = True
) -> list[Decided]:
    """Each open edge is resolved by the first end of its upstream that it has not used."""
    decided: list[Decided] = []
    for flow in world.flows.values():
        heard: dict[int, list[Edge]] = {}
        for number, each in enumerate(flow.edges):
            if not each.is_open or (only is not None and each is not only):
                continue
            mine = [
                e for e in ends if e.execution_id == each.upstream and e.number > each.min_event
            ]
            if mine:
                heard.setdefault(id(flow.groups[each.downstream]), []).append(flow.edges[number])
                each.resolve(mine[0])
        for edges in heard.values():
            group = flow.groups[edges[0].downstream]
            if group.state == "pending":
                decided.append(_judge(flow, group, edges, decides=decides))
    return decided


def _judge(flow: Flow, group: Group, heard: Sequence[Edge], *, decides: bool) -> Decided:
    good = sorted(
        (each for each in heard if each.resolution == "satisfied"), key=lambda e: e.resolved_by
    )
    before = flow.counts(group.downstream)[0] - len(good)
    if decides:
        group.state = flow.decision(group)
    kind, k, _ = kind_of(group.policy)
    if kind == "all_of":
        sources = good
    elif group.state == "satisfied":
        nth = (1 if kind == "any_of" else k or 0) - before - 1
        sources = [good[nth]] if 0 <= nth < len(good) else []
    else:
        sources = []
    return Decided(flow, group, [each for each in sources if each.data_passing_ref])


def judge(flow: Flow, group: Group) -> list[Decided]:
    """The group is looked at without an end that it heard of."""
    if group.state != "pending":
        return []
    group.state = flow.decision(group)
    if group.state == "pending":
        return []
    sources: list[Edge] = []
    if not isinstance(group.policy, AllOf) and group.state == "satisfied":
        good = [each for each in flow.into(group.downstream) if each.resolution == "satisfied"]
        sources = sorted(good, key=lambda each: each.resolved_by)[:1]
    return [Decided(flow, group, [each for each in sources if each.data_passing_ref])]


def act(world: World, decided: Iterable[Decided]) -> bool:
    """Downstreams are fed, promoted or skipped; True where siblings may be unneeded now."""
    fired: list[Decided] = []
    for each in decided:
        target = world.executions[each.group.downstream]
        for edge in each.sources:
            feed(world.executions[edge.upstream], target)
        if each.group.state == "pending":
            continue
        fired.append(each)
        if world.is_owed_an_end(target.execution_id):
            continue
        if each.group.state == "satisfied":
            promote(world, target)
        else:
            world.terminalize([target], "skipped", reason="dependency_impossible")
    unneeded = [each for each in fired if cancels(each.group.policy)]
    for each in unneeded:
        _list_siblings(world, each)
    return bool(unneeded)


def feed(source: Execution, target: Execution) -> None:
    if source.result is not None and target.lifecycle_phase == "runnable":
        target.payload = source.result


def promote(world: World, target: Execution) -> None:
    if target.eligibility_state == "blocked_by_operator" and target.not_before_ms is not None:
        target.not_before_ms = None
        world.touch(target)
    if target.eligibility_state != "blocked_by_dependencies":
        return
    later, target.not_before_ms = target.not_before_ms, None
    target.blocking_detail = None
    world.touch(target)
    if later is not None and later > world.now_ms:
        target.waits("not_eligible_until_time", "waiting_for_delay")
        target.delay_until_ms = later
    else:
        target.waits("eligible_now", "waiting_for_worker")


def _list_siblings(world: World, decided: Decided) -> None:
    flow, group = decided.flow, decided.group
    running = {
        each.upstream
        for each in flow.into(group.downstream)
        if each.is_open and world.executions[each.upstream].lifecycle_phase != "terminal"
    }
    lost = {
        each.upstream
        for each in flow.into(group.downstream)
        if each.resolution != "satisfied"
        and _leaves_others(world.executions[each.upstream])
        and _has_upstreams(world, flow, each.upstream)
    }
    if running or lost:
        group.siblings, group.losers = sorted(running), sorted(lost)
        group.sibling_reason = REASON[group.state]


def _leaves_others(member: Execution) -> bool:
    """Has it ended in a way that leaves those above it running?"""
    return member.terminal_outcome == "skipped" or (
        member.terminal_outcome == "cancelled" and member.cancelled_by != "engine"
    )


def _has_upstreams(world: World, flow: Flow, member: ExecutionId) -> bool:
    above = [world.executions[each.upstream] for each in flow.into(member)]
    return any(each.lifecycle_phase != "terminal" or _leaves_others(each) for each in above)


def cancel_siblings(world: World) -> int:
    """Turn after turn until nobody is listed; how many groups each turn worked on, added up."""
    total = 0
    while moved := _cancel_once(world):
        total += moved
    return total


def _cancel_once(world: World) -> int:
    """Members that served only losers are found, then the listed ones are cancelled."""
    listed = [
        (flow, group)
        for flow in world.flows.values()
        for group in flow.groups.values()
        if group.siblings or group.losers
    ]
    found = [_unneeded(world, flow, group.losers) for flow, group in listed]
    for (_, group), members in zip(listed, found, strict=True):
        group.siblings = [*dict.fromkeys([*group.siblings, *members])]
    for reason in REASON.values():
        for _, group in listed:
            if group.sibling_reason == reason:
                members = [world.executions[each] for each in group.siblings]
                world.terminalize(members, "cancelled", reason=reason, by="engine")
    for flow, group in listed:
        group.losers = [
            each
            for each in group.siblings
            if world.executions[each].terminal_outcome in ("cancelled", "skipped")
            and _has_upstreams(world, flow, each)
        ]
        group.siblings = []
    return len(listed)


def _unneeded(world: World, flow: Flow, losers: Sequence[ExecutionId]) -> list[ExecutionId]:
    """The members, not ended yet, of which every way leads to a loser or to one that has ended."""
    level = [each for each in losers if world.executions[each].lifecycle_phase == "terminal"]
    seen = dict.fromkeys(level)

    def needs(edge: Edge) -> bool:
        waiter, group = world.executions[edge.downstream], flow.groups[edge.downstream]
        if waiter.lifecycle_phase != "terminal":
            return edge.downstream not in seen
        runs_on = kind_of(group.policy)[2] == "let_run" and group.state != "pending"
        return runs_on and waiter.terminal_outcome != "cancelled"

    while level:
        above = {e.upstream for each in level for e in flow.into(each)} - seen.keys()
        level = [
            each
            for each in sorted(above)
            if (
                _leaves_others(world.executions[each])
                if world.executions[each].lifecycle_phase == "terminal"
                else not any(needs(edge) for edge in flow.edges if edge.upstream == each)
            )
        ]
        seen |= dict.fromkeys(level)
    return [each for each in seen if world.executions[each].lifecycle_phase != "terminal"]
