"""A flow as a picture: for the terminal, for Mermaid, for Graphviz."""

from __future__ import annotations

from graphlib import TopologicalSorter

import msgspec

from flowfabric.engine.flows.describe_flow import FlowSnapshot
from flowfabric.engine.flows.edges import EdgeSnapshot
from flowfabric.engine.flows.list_flows import FlowMember
from flowfabric.ids import ExecutionId
from flowfabric.joins import AllOf, AnyOf, JoinPolicy, Quorum
from flowfabric.states import GroupState, PublicState

_FILL = {
    PublicState.COMPLETED: "#c8e6c9",
    PublicState.ACTIVE: "#b3e5fc",
    PublicState.FAILED: "#ffcdd2",
    PublicState.EXPIRED: "#ffcdd2",
    PublicState.CANCELLED: "#e1bee7",
    PublicState.SKIPPED: "#eeeeee",
}


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A flow with its members and edges."""

    flow: FlowSnapshot
    members: list[FlowMember]
    edges: list[EdgeSnapshot]

    def ordered(self) -> list[FlowMember]:
        """The members, each after those that it waits for."""
        by_id = {member.execution_id: member for member in self.members}
        graph: dict[ExecutionId, list[ExecutionId]] = {each: [] for each in by_id}
        for edge in self.edges:
            if edge.downstream in by_id and edge.upstream in by_id:
                graph[edge.downstream].append(edge.upstream)
        return [by_id[each] for each in TopologicalSorter(graph).static_order()]

    def upstreams(self, downstream: ExecutionId) -> list[FlowMember]:
        """Those that a member waits for."""
        by_id = {member.execution_id: member for member in self.members}
        return [
            by_id[edge.upstream]
            for edge in self.edges
            if edge.downstream == downstream and edge.upstream in by_id
        ]

    def waits_for(self, downstream: ExecutionId) -> str:
        """How far the group of a member has come, in words."""
        for group in self.flow.edge_groups:
            if group.downstream_execution_id == downstream:
                if group.group_state is not GroupState.PENDING:
                    return ""
                required = group.policy.required(group.total_deps)
                return f" ({group.satisfied_count} of {required} done, {spoken(group.policy)})"
        return ""


def spoken(policy: JoinPolicy) -> str:
    """The policy in two words."""
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
    policies = {
        group.downstream_execution_id: group.policy
        for group in picture.flow.edge_groups
        if not isinstance(group.policy, AllOf)
    }
    for edge in picture.edges:
        if edge.upstream in number and edge.downstream in number:
            policy = policies.get(edge.downstream)
            arrow = "-->" if policy is None else f"-- {spoken(policy)} -->"
            lines.append(f"  {number[edge.upstream]} {arrow} {number[edge.downstream]}")
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
    for edge in picture.edges:
        if edge.upstream in number and edge.downstream in number:
            lines.append(f"  {number[edge.upstream]} -> {number[edge.downstream]};")
    return "\n".join([*lines, "}"])


def _label(member: FlowMember) -> str:
    """The member's name, without what either language would take for its own."""
    name = member.name or member.execution_kind
    return "".join(letter if letter.isalnum() or letter in " -_./:" else "_" for letter in name)
