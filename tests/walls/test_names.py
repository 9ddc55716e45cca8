"""One name, one file: operations and sweeps stand in the module of their name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from flowfabric.engine.engine import Engine
from flowfabric.reconcile.sweeps import SWEEPS
from tests.all_cases import all_cases

OF_THE_ENGINE_ITSELF = {"close", "connect", "is_remote", "partitions"}
OPERATIONS = sorted(
    name for name in dir(Engine) if not name.startswith("_") and name not in OF_THE_ENGINE_ITSELF
)


def operation(name: str) -> Callable[..., Any]:
    """The function that a method of `Engine` runs."""
    return inspect.unwrap(getattr(Engine, name))


def is_plural(name: str, singular: str) -> bool:
    """Is it the same words, one of them in the plural?"""
    words, others = name.split("_"), singular.split("_")
    if len(words) != len(others):
        return False
    changed = [(a, b) for a, b in zip(words, others, strict=True) if a != b]
    return len(changed) == 1 and changed[0][0] in (
        changed[0][1] + "s",
        re.sub("y$", "ies", changed[0][1]),
    )


def test_there_are_operations_to_look_at() -> None:
    assert len(OPERATIONS) >= 85
    assert {"claim", "cancel_flow", "subscribe_completions", "describe_flow"} <= set(OPERATIONS)


@all_cases("name", OPERATIONS)
def test_an_attribute_of_engine_is_the_function_of_its_name_in_the_module_of_its_name(
    name: str,
) -> None:
    function = operation(name)
    package, _, module = function.__module__.rpartition(".")

    assert function.__name__ == name
    assert package.startswith("flowfabric.engine.")
    assert module == name or is_plural(name, module)


@all_cases("sweep", SWEEPS, ids=lambda sweep: sweep.name)
def test_a_sweep_is_the_function_of_its_name_in_the_module_of_its_name(sweep: Any) -> None:
    module = sweep.step.__module__.rpartition(".")[2]

    assert sweep.step.__name__ == sweep.name == module


@all_cases("name", OPERATIONS)
def test_a_method_of_engine_says_what_its_operation_says(name: str) -> None:
    method, function = getattr(Engine, name), operation(name)
    first, *rest = inspect.signature(function).parameters

    assert method.__doc__ == function.__doc__
    assert method.__doc__
    assert first in ("conn", "pool", "hub", "reader")
    assert list(inspect.signature(method).parameters)[1:] == rest


@all_cases(
    ("name", "singular", "answer"),
    [
        ("submit_flows", "submit_flow", True),
        ("change_priorities", "change_priority", True),
        ("submit_flow", "submit_flows", False),
        ("submit_flow", "start_flow", False),
        ("list_flow_members", "list_flows", False),
    ],
)
def test_a_plural_is_told_from_another_name(name: str, singular: str, answer: bool) -> None:
    assert is_plural(name, singular) is answer
