"""Flows without a database: what section 5 of flows.md says, written down a second time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from flowfabric.joins import AllOf, AnyOf, JoinPolicy, Quorum

LOST = {"F", "C", "E", "K"}


def decision(kind: str, k: Any, s: int, f: int, x: int, u: int, *, expected_n: Any = None) -> str:
    """5.1: what the counts of a group that is not decided come to."""
    n = s + f + x + u
    r = {"all_of": n, "any_of": 1, "quorum": k}[kind]
    if expected_n is not None and n < expected_n:
        return "pending"
    if n > 0 and s >= r:
        return "satisfied"
    if f + x > n - r and (n >= r or u == 0):
        return "impossible"
    return "pending"


def kind_of(policy: JoinPolicy) -> tuple[str, int | None, str | None]:
    """How a policy is written: kind, k and what becomes of the others."""
    match policy:
        case AllOf():
            return "all_of", None, None
        case AnyOf(on_satisfied):
            return "any_of", None, str(on_satisfied)
        case Quorum(k, on_satisfied):
            return "quorum", k, str(on_satisfied)


def cancels(policy: JoinPolicy) -> bool:
    """Are the others cancelled once it is decided?"""
    return kind_of(policy)[2] == "cancel_remaining"


class Group:
    """One group that hears of ends, one after the other."""

    def __init__(self, policy: JoinPolicy, n: int) -> None:
        self.policy = policy
        self.s = self.f = self.x = 0
        self.u = n
        self.state = "pending"

    def hear(self, letter: str) -> bool:
        """The upstream ended so (S, F, C, E, K); was the group decided by it?"""
        self.u -= 1
        self.s += letter == "S"
        self.x += letter == "K"
        self.f += letter in "FCE"
        if self.state != "pending":
            return False
        kind, k, _ = kind_of(self.policy)
        self.state = decision(kind, k, self.s, self.f, self.x, self.u)
        return self.state != "pending"

    def __str__(self) -> str:
        return f"{self.s}/{self.f}/{self.x}/{self.u} {self.state}"


class Dag(msgspec.Struct):
    """A graph, the policies of its joins, and how each member ends if it gets to run."""

    upstreams: dict[str, list[str]]
    policies: dict[str, JoinPolicy]
    outcomes: dict[str, str]

    @property
    def arrows(self) -> str:
        edges = [f"{up}>{down}" for down, ups in self.upstreams.items() for up in ups]
        return " ".join([*self.upstreams, *edges])


def final_letters(dag: Dag) -> dict[str, str]:
    """How every member ends where nobody is cancelled for others; the order does not matter."""
    ends: dict[str, str] = {}
    for name in _in_order(dag.upstreams):
        group = Group(dag.policies.get(name, AllOf()), len(dag.upstreams[name]))
        for up in dag.upstreams[name]:
            group.hear(ends[up])
        runs = not dag.upstreams[name] or group.state == "satisfied"
        ends[name] = dag.outcomes[name] if runs else "K"
    return ends


def _in_order(upstreams: Mapping[str, Iterable[str]]) -> list[str]:
    ordered: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in ordered:
            for up in upstreams[name]:
                visit(up)
            ordered[name] = None

    for name in upstreams:
        visit(name)
    return list(ordered)


def letters_in_turns(dag: Dag) -> dict[str, str]:
    """How every member ends where all that may run end at once, then all ends are carried.

    One turn of carrying: every end that is told is heard, then each member that is not needed any
    more is cancelled; and again, until nothing is told.
    """
    groups = {
        name: Group(dag.policies.get(name, AllOf()), len(ups))
        for name, ups in dag.upstreams.items()
        if ups
    }
    downstreams: dict[str, list[str]] = {name: [] for name in dag.upstreams}
    for down, ups in dag.upstreams.items():
        for up in ups:
            downstreams[up].append(down)
    ends: dict[str, str] = {}
    unneeded: set[str] = set()
    ready = [name for name, ups in dag.upstreams.items() if not ups]
    while ready:
        for name in ready:
            ends[name] = dag.outcomes[name]
        told, ready = ready, []
        while told:
            heard, told, decided = told, [], []
            for up in heard:
                for down in downstreams[up]:
                    if groups[down].hear(ends[up]):
                        decided.append(down)
            for down in decided:
                if down in ends:
                    continue
                if groups[down].state == "satisfied":
                    ready.append(down)
                else:
                    ends[down] = "K"
                    told.append(down)
            lost: list[str] = []
            for down in decided:
                if cancels(groups[down].policy):
                    lost += dag.upstreams[down]
            for up in lost:
                if up not in ends:
                    ends[up] = "C"
                    unneeded.add(up)
                    told.append(up)
            told += _climb(dag, groups, ends, unneeded, lost)
        ready = [name for name in ready if name not in ends]
    return ends


def _climb(
    dag: Dag, groups: Mapping[str, Group], ends: dict[str, str], unneeded: set[str], lost: list[str]
) -> list[str]:
    """Members that served only those that are lost are cancelled too; their names."""
    downstreams: dict[str, list[str]] = {name: [] for name in dag.upstreams}
    for down, ups in dag.upstreams.items():
        for up in ups:
            downstreams[up].append(down)

    def needs(down: str) -> bool:
        if down not in ends:
            return True
        runs_on = kind_of(groups[down].policy)[2] == "let_run" and groups[down].state != "pending"
        return runs_on and ends[down] != "C"

    found: list[str] = []
    level = [name for name in lost if name in unneeded or ends[name] in "KC"]
    while level:
        above = dict.fromkeys(up for name in level for up in dag.upstreams[name])
        level = [up for up in above if up in ends and up not in unneeded and ends[up] in "KC"]
        for up in above:
            if up not in ends and not any(needs(down) for down in downstreams[up]):
                ends[up] = "C"
                unneeded.add(up)
                level.append(up)
                found.append(up)
    return found
