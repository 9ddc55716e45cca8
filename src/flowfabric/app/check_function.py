"""What a function must be to become a task: refused when it is registered, with what to write."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from flowfabric.errors import ConfigError
from flowfabric.worker.context import Ctx


def check_function(function: Any, kind: str) -> Callable[..., Any]:
    """The function, if a worker can run it as a task; else raises `ConfigError`."""
    if not inspect.isroutine(function) or inspect.isbuiltin(function):
        raise ConfigError("task", kind, f"{_named(function)} is not a function; write a def")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigError(
            "task",
            kind,
            f"{_named(function)} is a generator, and a task has one result: write return instead"
            " of yield, such as a list",
        )
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise ConfigError("task", kind, "its first parameter must be the context (ctx: Ctx)")
    for parameter in parameters[1:]:
        _check_parameter(parameter, kind)
    return function


def annotations_of(function: Callable[..., Any], kind: str) -> dict[str, Any]:
    """The annotations of a task's function; raises `ConfigError` if one cannot be resolved."""
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise ConfigError("task", kind, f"annotation cannot be resolved: {error}") from None
    first, *others = inspect.signature(function).parameters
    if hints.get(first, Ctx) not in (Ctx, Any):
        raise ConfigError("task", kind, f"its first parameter, {first!r}, must be of type Ctx")
    for name in others:
        if hints.get(name) is Ctx:
            raise ConfigError(
                "task", kind, f"parameter {name!r} is of type Ctx: only the first one may be"
            )
    return hints


def _check_parameter(parameter: inspect.Parameter, kind: str) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        instead = "list[...]" if stars == "*" else "dict[str, ...]"
        raise ConfigError(
            "task",
            kind,
            f"parameter {stars}{parameter.name} cannot come from a payload: write"
            f" {parameter.name}: {instead}",
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ConfigError(
            "task", kind, f"parameter {parameter.name!r} is positional-only: remove the /"
        )


def _named(function: Any) -> str:
    return str(getattr(function, "__qualname__", repr(function)))
