"""A flow as a graph: its members, the links between them, and their joins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Final

import msgspec

from flowfabric.engine.flows.describe_flow import FlowSnapshot
from flowfabric.engine.flows.edge import EdgeSnapshot
from flowfabric.engine.flows.list_flow_members import FlowMember
from flowfabric.ids import ExecutionId
from flowfabric.joins import AllOf, AnyOf, JoinPolicy, Quorum
from flowfabric.states import EdgeResolution, GroupState, OnSatisfied, PublicState, WaitsAs

_DIGITS: Final = re.compile(r"(\d+)")


class LinkState(StrEnum):
    """Whether the upstream of a link has ended, and how."""

    OPEN = "open"
    SATISFIED = "satisfied"
    IMPOSSIBLE = "impossible"


class PartialJoin(msgspec.Struct, frozen=True, kw_only=True):
    """A join that needs some of its upstreams only: any of, or a quorum."""

    required: int
    total: int
    succeeded: int
    is_impossible: bool = False


class GraphMember(msgspec.Struct, frozen=True, kw_only=True):
    """One member; `key` is its id as it stands in addresses, `N.uuid`."""

    key: str
    kind: str
    state: PublicState
    name: str | None = None
    attempts: int = 0
    not_needed: bool = False
    """Was it cancelled because another member had won the race?"""
    join: PartialJoin | None = None
    progress: float | None = None
    """From 0 to 1."""
    took: float | None = None
    """Seconds that it ran, or has run so far; an estimate while it has not started."""
    is_estimate: bool = False

    @property
    def title(self) -> str:
        """Its name, else its kind."""
        return self.name or self.kind


class GraphLink(msgspec.Struct, frozen=True, kw_only=True):
    """An arrow from one member to another, by their numbers."""

    upstream: int
    downstream: int
    state: LinkState = LinkState.OPEN
    passes_data: bool = False
    is_child: bool = False
    """Does it lead from a parent to a child that its handler started?"""


class Graph(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Members and links of a flow; a number is an index of `members`."""

    members: Sequence[GraphMember]
    links: Sequence[GraphLink]

    @cached_property
    def places(self) -> list[int]:
        """The place of each member when all are sorted by name, numbers as numbers, then by id."""
        natural = sorted(range(len(self.members)), key=self._order)
        places = [0] * len(natural)
        for place, number in enumerate(natural):
            places[number] = place
        return places

    def _order(self, number: int) -> tuple[list[tuple[int, int, str]], str]:
        member = self.members[number]
        words = [
            (0, int(word), "") if index % 2 and len(word) < 18 else (1, 0, word)
            for index, word in enumerate(_DIGITS.split(member.title))
        ]
        return words, member.key


def graph_of(
    flow: FlowSnapshot,
    members: Sequence[FlowMember],
    edges: Sequence[EdgeSnapshot],
    now: datetime,
) -> Graph:
    """The graph of a flow as it was read; links to executions that are gone are left out.

    `now` is the time by the clock of the database: running members have run until then.
    """
    numbers = {member.execution_id: number for number, member in enumerate(members)}
    policies: dict[ExecutionId, JoinPolicy] = {}
    joins: dict[ExecutionId, PartialJoin] = {}
    decided: set[ExecutionId] = set()
    for group in flow.edge_groups:
        if group.waits_as is not WaitsAs.MEMBER:
            continue
        waiter = group.downstream_execution_id
        policies[waiter] = group.policy
        if group.group_state is GroupState.SATISFIED:
            decided.add(waiter)
        if not isinstance(group.policy, AllOf):
            joins[waiter] = PartialJoin(
                required=group.policy.required(group.total_deps),
                total=group.total_deps,
                succeeded=group.satisfied_count,
                is_impossible=group.group_state is GroupState.IMPOSSIBLE,
            )
    links: list[GraphLink] = []
    waiters: dict[int, list[ExecutionId]] = {}
    for edge in edges:
        upstream, downstream = numbers.get(edge.upstream), numbers.get(edge.downstream)
        if upstream is None or downstream is None:
            continue
        is_child = edge.waits_as is WaitsAs.CHILDREN
        if not is_child:
            waiters.setdefault(upstream, []).append(edge.downstream)
        links.append(
            GraphLink(
                upstream=downstream if is_child else upstream,
                downstream=upstream if is_child else downstream,
                state=_STATES[edge.resolution],
                passes_data=edge.data_passing_ref is not None,
                is_child=is_child,
            )
        )
    lost = {
        number
        for number, found in waiters.items()
        if all(each in decided and _cancels_losers(policies[each]) for each in found)
    }
    return Graph(
        members=[
            GraphMember(
                key=address(member.execution_id),
                kind=member.execution_kind,
                name=member.name,
                state=member.public_state,
                attempts=member.total_attempt_count,
                join=joins.get(member.execution_id),
                not_needed=number in lost and member.public_state is PublicState.CANCELLED,
                progress=_progress(member),
                took=_took(member, now),
            )
            for number, member in enumerate(members)
        ],
        links=links,
    )


def _progress(member: FlowMember) -> float | None:
    """What the handler of a member that runs has reported, from 0 to 1."""
    if member.progress_pct is None or member.public_state is not PublicState.ACTIVE:
        return None
    return member.progress_pct / 100


def _took(member: FlowMember, now: datetime) -> float | None:
    """Seconds from the first start of a member to its end, or to now."""
    if member.started_at is None:
        return None
    return max(((member.terminal_at or now) - member.started_at).total_seconds(), 0.0)


def address(execution_id: ExecutionId) -> str:
    """The id as it stands in addresses of pages: `N.uuid`."""
    return f"{execution_id.partition_key}.{execution_id.uuid}"


def _cancels_losers(policy: JoinPolicy) -> bool:
    match policy:
        case AllOf():
            return False
        case AnyOf() | Quorum():
            return policy.on_satisfied == OnSatisfied.CANCEL_REMAINING


_STATES: Final = {
    EdgeResolution.UNRESOLVED: LinkState.OPEN,
    EdgeResolution.SATISFIED: LinkState.SATISFIED,
    EdgeResolution.IMPOSSIBLE: LinkState.IMPOSSIBLE,
}
