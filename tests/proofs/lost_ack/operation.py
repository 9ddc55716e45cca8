"""What is cut, and what counts as right afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import ExecutionNotActive, FlowFabricError
from flowfabric.states import OperatorEventType


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation on as many subjects as there are cuts."""

    name: str
    begin: Callable[[Engine, int], Awaitable[Sequence[Any]]]
    """Makes the subjects, over a good line."""
    call: Callable[[Engine, Any], Awaitable[Any]]
    right: Callable[[Any, Any], bool]
    """Is this answer to the repeated call on this subject the one that the specs give?"""
    effects: str
    """What counts how often it happened."""
    each: int = 1
    """Effects of one call."""
    adds: int = 0
    """What a repeated call does once more, because the specs say so."""
    writes: bool = False
    """A repeat stores the same again, or what it adds."""
    commits: int = 1
    """Any of this many commits may be the one that nobody hears of."""
    repeats: bool = False
    """The client repeats it by itself."""
    refused: bool = False
    """The specs have the repeat refused; what the refusal tells shows that all is done."""


# What was done so far, as SQL.


def executions(state: str) -> str:
    return f"SELECT count(*) FROM ff.execution WHERE public_state = '{state}'"


def ends(outcome: str) -> str:
    return f"SELECT count(*) FROM ff.completion_event WHERE outcome = '{outcome}'"


def told(event: OperatorEventType) -> str:
    return f"SELECT count(*) FROM ff.operator_event WHERE event_type = '{event}'"


def given_back(reason: str) -> str:
    return f"SELECT count(*) FROM ff.lease_event WHERE reason = '{reason}'"


def rows(table: str, where: str = "true") -> str:
    return f"SELECT count(*) FROM ff.{table} WHERE {where}"


def again(kind: type) -> Callable[[Any, Any], bool]:
    """The first answer once more, marked as such."""
    return lambda answer, _: type(answer[0]) is kind and answer[0].repeated


def of(kind: type) -> Callable[[Any, Any], bool]:
    return lambda answer, _: type(answer) is kind


def put_down(epochs: int) -> Callable[[Any, Any], bool]:
    """Nobody holds the attempt any more, and nobody has since (executions.md 7)."""

    def right(answers: list[Any], lease: Lease) -> bool:
        [answer] = answers
        told = (answer.lifecycle_phase, answer.lease_epoch, answer.attempt_id)
        wanted = ("runnable", lease.lease_epoch + epochs, lease.attempt_id)
        return isinstance(answer, ExecutionNotActive) and told == wanted

    return right


def refusal(kind: type[FlowFabricError], state: str) -> Callable[[Any, Any], bool]:
    """A refusal which tells that the execution is where the first call has put it."""
    return lambda answer, _: type(answer) is kind and f" is {state}" in str(answer)


def only(kind: type) -> Callable[[Any, Any], bool]:
    return lambda answer, _: type(answer[0]) is kind
