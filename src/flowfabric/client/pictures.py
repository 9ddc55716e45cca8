"""A flow as a graph: for the tree in the terminal, for Mermaid, for Graphviz."""

from __future__ import annotations

from collections import Counter
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from flowfabric.ids import ExecutionId
from flowfabric.joins import AllOf, AnyOf, JoinPolicy, Quorum
from flowfabric.states import EdgeResolution, GroupState, PublicState, WaitsAs

if TYPE_CHECKING:
    from flowfabric.engine.flows.describe_flow import EdgeGroupSnapshot, FlowSnapshot
    from flowfabric.engine.flows.edge import EdgeSnapshot
    from flowfabric.engine.flows.list_flow_members import FlowMember

_FILL = {
    PublicState.COMPLETED: "#c8e6c9",
    PublicState.ACTIVE: "#b3e5fc",
    PublicState.FAILED: "#ffcdd2",
    PublicState.EXPIRED: "#ffcdd2",
    PublicState.CANCELLED: "#e1bee7",
    PublicState.SKIPPED: "#eeeeee",
}


class Link(NamedTuple):
    """An arrow of the graph: `downstream` waits for `upstream`."""

    upstream: ExecutionId
    downstream: ExecutionId
    policy: JoinPolicy


class Picture:
    """A flow with its members and the links between them; a parent waits for its children.

    The last of the upstreams of a member is the one below which the member is drawn.
    """

    def __init__(
        self, flow: FlowSnapshot, members: list[FlowMember], edges: list[EdgeSnapshot]
    ) -> None:
        self.flow, self.members, self.edges = flow, members, edges
        self.by_id = {member.execution_id: member for member in members}
        policies = {group.group_id: group.policy for group in flow.edge_groups}
        self.links: list[Link] = []
        self._numbers = {each: number for number, each in enumerate(self.by_id)}
        above: dict[ExecutionId, list[EdgeSnapshot]] = {each: [] for each in self.by_id}
        self._below: Counter[ExecutionId] = Counter()
        self._parents: dict[ExecutionId, FlowMember] = {}
        for edge in edges:
            waiter = edge.downstream
            if edge.upstream not in self.by_id or waiter not in self.by_id:
                continue
            policy = policies.get(edge.group_id, AllOf())
            self.links.append(Link(edge.upstream, waiter, policy))
            if edge.waits_as is WaitsAs.MEMBER:
                above[waiter].append(edge)
                self._below[edge.upstream] += 1
            else:
                self._parents[edge.upstream] = self.by_id[waiter]
                self._below[waiter] += 1

        def place(edge: EdgeSnapshot) -> tuple[bool, int]:
            """A member whose join one success decides stands below that success."""
            decides = edge.resolution is EdgeResolution.SATISFIED and not isinstance(
                policies.get(edge.group_id, AllOf()), AllOf
            )
            return decides, self._numbers[edge.upstream]

        self._above = {
            waiter: [self.by_id[edge.upstream] for edge in sorted(found, key=place)]
            for waiter, found in above.items()
        }
        self._pending: dict[ExecutionId, list[EdgeGroupSnapshot]] = {}
        for group in flow.edge_groups:
            if group.group_state is GroupState.PENDING:
                self._pending.setdefault(group.downstream_execution_id, []).append(group)

    def ordered(self) -> list[FlowMember]:
        """The members in their order, but each after its upstreams, and children after parents."""
        graph = {each: [above.execution_id for above in self.above(each)] for each in self.by_id}
        sorter = TopologicalSorter(graph)
        sorter.prepare()
        ready: list[int] = []
        ordered: list[FlowMember] = []
        while sorter.is_active():
            for each in sorter.get_ready():
                heappush(ready, self._numbers[each])
            ordered.append(self.members[heappop(ready)])
            sorter.done(ordered[-1].execution_id)
        return ordered

    def above(self, execution_id: ExecutionId) -> list[FlowMember]:
        """The members above a member in the tree: its upstreams, and the parent of a child."""
        parent = self._parents.get(execution_id)
        return [*self._above[execution_id], *([] if parent is None else [parent])]

    def continues(self, execution_id: ExecutionId) -> FlowMember | None:
        """The only upstream of a member, if no other member follows that upstream."""
        match self.above(execution_id):
            case [only] if self._below[only.execution_id] == 1:
                return None if execution_id in self._parents else only
            case _:
                return None

    def waits_for(self, execution_id: ExecutionId) -> str:
        """The progress of the pending joins of a member: ` (1 of 2 done, all of)`."""
        return "".join(
            f" ({group.satisfied_count} of {group.policy.required(group.total_deps)} done,"
            f" {spoken(group.policy)})"
            for group in self._pending.get(execution_id, [])
        )


def spoken(policy: JoinPolicy) -> str:
    """The policy as text."""
    match policy:
        case AllOf():
            return "all of"
        case AnyOf():
            return "any of"
        case Quorum():
            return f"quorum {policy.k}"


def mermaid(picture: Picture) -> str:
    """The graph in Mermaid's language."""
    number = {member.execution_id: f"n{i}" for i, member in enumerate(picture.ordered())}
    lines = ["graph LR"]
    for member in picture.ordered():
        label = f"{_label(member)}<br/>{member.public_state.value}"
        lines.append(f'  {number[member.execution_id]}["{label}"]')
    for link in picture.links:
        label = "" if isinstance(link.policy, AllOf) else f"-- {spoken(link.policy)} "
        lines.append(f"  {number[link.upstream]} {label}--> {number[link.downstream]}")
    for member in picture.members:
        fill = _FILL.get(member.public_state)
        if fill:
            lines.append(f"  style {number[member.execution_id]} fill:{fill}")
    return "\n".join(lines)


def dot(picture: Picture) -> str:
    """The graph in Graphviz's language."""
    number = {member.execution_id: f"n{i}" for i, member in enumerate(picture.ordered())}
    lines = ["digraph flow {", "  rankdir=LR; node [shape=box, style=filled, fillcolor=white];"]
    for member in picture.ordered():
        fill = _FILL.get(member.public_state, "white")
        label = f"{_label(member)}\\n{member.public_state.value}"
        lines.append(f'  {number[member.execution_id]} [label="{label}", fillcolor="{fill}"];')
    lines += [f"  {number[link.upstream]} -> {number[link.downstream]};" for link in picture.links]
    return "\n".join([*lines, "}"])


def _label(member: FlowMember) -> str:
    """The name of the member, with `_` for characters that have a meaning in a graph language."""
    name = member.name or member.execution_kind
    return "".join(letter if letter.isalnum() or letter in " -_./:" else "_" for letter in name)
