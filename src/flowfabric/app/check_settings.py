"""Settings of a task that are no durations or names: refused with what to write instead."""

from __future__ import annotations

import inspect
from typing import Any, Final

from flowfabric.errors import ConfigError, invalid_input
from flowfabric.worker.durable.settings import MOST_STEP_BYTES, DurableSettings
from flowfabric.worker.durable.step import exception_types

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


def durable_settings(
    *,
    replay: Any,
    on_divergence: Any,
    version: object,
    raises: object,
    max_step_bytes: object,
    in_process: bool,
) -> DurableSettings:
    """The settings of a task's durable calls; raises `ValidationError` if one is not valid."""
    if replay not in ("strict", "by_name"):
        raise invalid_input("replay", replay, "must be 'strict' or 'by_name'")
    if on_divergence not in (None, "suspend", "fail"):
        raise invalid_input("on_divergence", on_divergence, "must be 'suspend' or 'fail'")
    if type(version) is not int or version < 0:
        raise invalid_input("version", version, "must be a whole number of at least 0")
    if type(max_step_bytes) is not int or not 1 <= max_step_bytes <= MOST_STEP_BYTES:
        why = f"must be a whole number from 1 to {MOST_STEP_BYTES}"
        raise invalid_input("max_step_bytes", max_step_bytes, why)
    return DurableSettings(
        replay=replay,
        on_divergence=on_divergence,
        version=version,
        raises=exception_types(raises, field="raises"),
        max_step_bytes=max_step_bytes,
        is_allowed=not in_process,
    )
