"""Settings of a task that are no durations or names: refused with what to write instead."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Final, cast

from flowfabric.errors import ConfigError, invalid_input

_EXECUTORS: Final = ("thread", "process")


def check_kind(kind: object) -> None:
    """Raise `ValidationError` for a function: the decorator was written without its name."""
    if callable(kind):
        name = getattr(kind, "__name__", "name")
        raise invalid_input(
            "kind", name, f'is a function: write @app.task("{name}"), the kind is stored'
        )


def check_executor(executor: object) -> None:
    """Raise `ValidationError` unless it is an executor that exists."""
    if executor not in _EXECUTORS:
        raise invalid_input("executor", executor, "must be 'thread' or 'process'")


def check_codec(codec: object) -> None:
    """Raise `ValidationError` unless it is a codec: an object, not a name or a class."""
    if isinstance(codec, type | str) or not all(
        hasattr(codec, each) for each in ("name", "encode", "decoder")
    ):
        raise invalid_input("codec", codec, "must be a codec: write codec=MsgpackCodec()")


def check_middleware(function: object) -> None:
    """Raise `ConfigError` unless it can be called with a context and `call_next`."""
    name = str(getattr(function, "__qualname__", repr(function)))
    wanted = "write async def m(ctx, call_next): return await call_next()"
    if not callable(function):
        raise ConfigError("middleware", name, f"is not a function; {wanted}")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigError("middleware", name, f"is a generator; {wanted}")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise ConfigError("middleware", name, f"{error}; {wanted}") from None


def exception_types(given: object, *, field: str) -> tuple[type[BaseException], ...]:
    """The exception classes; raises `ValidationError` for anything else."""
    if isinstance(given, type):
        name = cast("type[Any]", given).__name__
        raise invalid_input(field, name, f"must be a list: write {field}=({name},)")
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise invalid_input(field, given, f"must be a list: write {field}=(ValueError,)")
    types = tuple(cast("Iterable[Any]", given))
    for each in types:
        if not isinstance(each, type) or not issubclass(each, BaseException):
            raise invalid_input(
                field, cast("object", each), "must be an exception class, such as ValueError"
            )
    return types
