"""A flow in words: what runs, what waits, and what comes next."""

from __future__ import annotations

from collections import Counter
from typing import Final

from flowfabric.dashboard.flows.reading import FlowRead
from flowfabric.dashboard.graph import BAR_ORDER, words
from flowfabric.states import BlockingReason, DerivedFlowState, PublicState

_NEXT: Final = 2
_PHRASES: Final = (
    (PublicState.FAILED, "failed", "failed"),
    (PublicState.EXPIRED, "expired", "expired"),
    (PublicState.ACTIVE, "runs", "run"),
    (PublicState.RESUMABLE, "goes on soon", "go on soon"),
    (PublicState.SUSPENDED, "waits for a signal", "wait for a signal"),
    (PublicState.RATE_LIMITED, "is held back by a limit", "are held back by a limit"),
    (PublicState.DELAYED, "is delayed", "are delayed"),
    (PublicState.WAITING, "waits for a worker", "wait for a worker"),
)
_ENDS: Final = {
    DerivedFlowState.COMPLETED: "It is completed",
    DerivedFlowState.FAILED: "It failed",
    DerivedFlowState.CANCELLED: "It was cancelled",
}
DISABLED: Final = {
    DerivedFlowState.COMPLETED: {"cancel": "it has ended", "replay": "it is completed"},
    DerivedFlowState.FAILED: {"cancel": "it has ended"},
    DerivedFlowState.CANCELLED: {"cancel": "it is cancelled"},
}
"""Acts that the state of a flow does not allow, and why."""


def sentence(read: FlowRead) -> str:
    """The state of the flow in a sentence: `3 run, 1 waits for a signal; next: deploy.`"""
    states = Counter(member.public_state for member in read.members)
    if not read.members:
        return "It has no members."
    if read.flow.derived_state.is_settled:
        done = states[PublicState.COMPLETED]
        return f"{_ENDS[read.flow.derived_state]}: {done:,} of {len(read.members):,} succeeded."
    people = sum(
        member.public_state is PublicState.SUSPENDED
        and member.blocking_reason is BlockingReason.WAITING_FOR_APPROVAL
        for member in read.members
    )
    states[PublicState.SUSPENDED] -= people
    parts = [
        f"{states[state]:,} {one if states[state] == 1 else many}"
        for state, one, many in _PHRASES
        if states[state]
    ]
    if people:
        parts.append(f"{people:,} {'waits' if people == 1 else 'wait'} for a person")
    said = ", ".join(parts) or f"{len(read.members):,} members wait for others"
    coming = _next(read)
    return f"{said}; next: {', '.join(coming)}." if coming else f"{said}."


def counted_states(read: FlowRead) -> list[tuple[PublicState, int]]:
    """The states that members are in, with their counts."""
    states = Counter(member.public_state for member in read.members)
    return [(state, states[state]) for state in BAR_ORDER if states[state]]


def state_words(state: PublicState) -> str:
    """The state as words."""
    return words(state)


def _next(read: FlowRead) -> list[str]:
    """The members that wait only for such as run or can run."""
    members = read.graph.members
    far: set[int] = set()
    near: set[int] = set()
    for link in read.graph.links:
        if members[link.downstream].state is not PublicState.WAITING_CHILDREN or link.is_child:
            continue
        above = members[link.upstream].state
        if above is PublicState.WAITING_CHILDREN:
            far.add(link.downstream)
        elif not above.is_terminal:
            near.add(link.downstream)
    coming = sorted(near - far, key=read.graph.places.__getitem__)
    named = [members[number].title for number in coming[:_NEXT]]
    return [*named, *([f"{len(coming) - _NEXT:,} more"] if len(coming) > _NEXT else [])]
