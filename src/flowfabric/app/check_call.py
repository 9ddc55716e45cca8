"""What is submitted must be a call, and what a member waits for must be members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast, get_args

from flowfabric.app.task import Call, Task
from flowfabric.errors import invalid_input
from flowfabric.joins import JoinPolicy

R = TypeVar("R")


def check_call(given: object) -> None:
    """Raise `ValidationError` for a task without its arguments, and for anything else."""
    if isinstance(given, Call):
        return
    name = cast("Task[..., Any]", given).__name__ if isinstance(given, Task) else "task"
    raise invalid_input("call", cast("object", given), f"must be a call: write {name}.call(...)")


def check_calls(given: Iterable[Call[R]]) -> Sequence[Call[R]]:
    """The calls as a sequence; raises `ValidationError` for a single call, or none at all."""
    if isinstance(given, Call) or not _is_iterable(given):
        raise invalid_input("calls", given, "must be a list: write submit_many([task.call(...)])")
    return given if isinstance(given, Sequence) else list(given)


def check_upstreams(members: tuple[object, ...], policy: object) -> None:
    """Raise `ValidationError` for what is no member of a flow, or no policy of a join."""
    for each in members:
        if not hasattr(each, "upstreams"):
            how = ".after(*members)" if isinstance(each, list | tuple) else ".after(member)"
            raise invalid_input(
                "after", cast("object", each), f"must be what flow.add returned: write {how}"
            )
    if policy is not None and not isinstance(policy, get_args(JoinPolicy)):
        raise invalid_input(
            "policy", policy, "must be a join policy: write AllOf(), AnyOf() or Quorum(2)"
        )


def _is_iterable(given: object) -> bool:
    return isinstance(given, Iterable)
