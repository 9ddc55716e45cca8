"""What a call came to, in a form that two sides can be compared by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowfabric.errors import FlowFabricError

FREE: frozenset[str] = frozenset({"detail", "existing", "edge_id"})
"""Facts of errors that are not promised: the wording, and which of two fitting edges is named."""


class Divergence(AssertionError):
    """The engine and the model do not agree."""


def attempt(call: Callable[[], Any]) -> Any:
    """The answer of the call, or the typed error that it raised."""
    try:
        return call()
    except FlowFabricError as error:
        return error


def is_refusal(answer: Any) -> bool:
    """Did nothing happen? An error, an answer that says so, or nothing to give."""
    if isinstance(answer, list):
        return all(is_refusal(each) for each in answer)
    if isinstance(answer, FlowFabricError) or getattr(answer, "repeated", False):
        return True
    named = type(answer).__name__
    return named in ("Duplicate", "FlowExists") or named.startswith("Already")


def same(told: Any, expected: Any) -> bool:
    """Equal values; errors of the same class with the same code and the same facts."""
    if isinstance(told, list) and isinstance(expected, list):
        return len(told) == len(expected) and all(map(same, told, expected))
    if isinstance(told, FlowFabricError) and isinstance(expected, FlowFabricError):
        return type(told) is type(expected) and _facts(told) == _facts(expected)
    return bool(type(told) is type(expected) and told == expected)


def _facts(error: FlowFabricError) -> dict[str, Any]:
    told = {name: value for name, value in vars(error).items() if name not in FREE}
    return told | {"code": error.code}
