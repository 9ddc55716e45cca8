"""A step as it is declared: a function with its settings."""

from __future__ import annotations

import functools
import inspect
import random
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import timedelta
from functools import partial
from types import FunctionType, MethodType
from typing import (
    Any,
    Final,
    Generic,
    TypeVar,
    TypeVarTuple,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from flowfabric.engine.journal.entry import MAX_TRIES
from flowfabric.errors import ConfigError, Fail, RetryLater, invalid_input
from flowfabric.policy import Retry, milliseconds
from flowfabric.states import FailureClass

R_co = TypeVar("R_co", covariant=True)
Ts = TypeVarTuple("Ts")


class StepSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A function with the settings of a step; `app.step` declares one."""

    name: str
    function: Callable[..., Any]
    retry: Retry | None = None
    timeout: float | None = None
    raises: tuple[type[BaseException], ...] = ()
    returns: Any = None
    lazy: bool = False

    @property
    def wanted(self) -> Any:
        """The type of the result."""
        return self.returns if self.returns is not None else return_type(self.function)


class DeclaredStep(Generic[*Ts, R_co]):
    """A function with the settings of a step: `ctx.step(charge, …)`; `charge(…)` just calls it."""

    def __init__(self, step: StepSettings) -> None:
        self.flowfabric_step = step
        functools.update_wrapper(self, step.function)

    def __repr__(self) -> str:
        return f"<step {self.flowfabric_step.name!r}>"

    def __call__(self, *args: *Ts) -> R_co:
        """Call the function directly, without recording anything."""
        return self.flowfabric_step.function(*args)


def return_type(function: Callable[..., Any]) -> Any:
    """The annotated type of the result; `Any` without an annotation."""
    while isinstance(function, partial):
        function = function.func
    function = getattr(function, "__func__", function)
    try:
        found = _return_types.get(function, _UNKNOWN)
        if found is _UNKNOWN:
            found = _return_types[function] = _annotated(function)
        return found
    except TypeError:  # it has no hash, or cannot be referred to weakly
        return _annotated(function)


_UNKNOWN: Final = object()
_return_types: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _annotated(function: Callable[..., Any]) -> Any:
    called = function if inspect.isroutine(function) else type(function).__call__
    try:
        found = get_type_hints(called).get("return", Any)
    except Exception:
        return Any
    if get_origin(found) in (Coroutine, Awaitable):  # a plain function that returns one
        return get_args(found)[-1]
    return found


def check_timeout(timeout: float | timedelta | None) -> float | None:
    """A timeout in seconds; raises `ValidationError(invalid_input)` unless it is positive."""
    if timeout is None:
        return None
    limit = milliseconds(timeout, field="timeout")
    if limit <= 0:
        raise invalid_input("timeout", timeout, "must be at least a millisecond")
    return limit / 1000


def is_async(function: Callable[..., Any]) -> bool:
    """Is this a coroutine function, also behind `functools.partial` or as a callable object?"""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, FunctionType | MethodType):
        is_plainly = function.__code__.co_flags & inspect.CO_COROUTINE
        return bool(is_plainly) or inspect.iscoroutinefunction(function)
    return inspect.iscoroutinefunction(type(function).__call__)


def next_pause(retry: Retry, tries: int, error: Exception, category: str) -> float | None:
    """How many seconds to wait before the next try; None if there is none."""
    if tries > retry.max_retries or (isinstance(error, Fail) and error.may_retry is False):
        return None
    if isinstance(error, RetryLater):
        return _backoff(retry, tries) if error.after is None else max(0.0, error.after)
    return _backoff(retry, tries) if _is_retried(retry, category) else None


def _is_retried(retry: Retry, category: str) -> bool:
    allowed = tuple(retry.categories)
    if allowed:
        return category in allowed
    return FailureClass.of(category) is not FailureClass.PERMANENT


def _backoff(retry: Retry, tries: int) -> float:
    first, most = milliseconds(retry.initial) / 1000, milliseconds(retry.max) / 1000
    pause = min(first * retry.factor ** min(tries - 1, 64), most)
    return random.uniform(pause / 2, pause) if retry.jitter else pause


def check_callable(name: str, function: object) -> Callable[..., Any]:
    """The function of a step; raises `ConfigError` for anything else."""
    if not callable(function):
        raise ConfigError("step", str(name), "needs a function as its second argument")
    return function


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


def check_retry(retry: object) -> Retry | None:
    """The retry policy of a step; raises `ValidationError` for anything else."""
    if retry is not None and not isinstance(retry, Retry):
        number = retry if type(retry) is int else "..."
        raise invalid_input(
            "retry", retry, f"must be a Retry: write retry=Retry(max_retries={number})"
        )
    return retry


def check_step_retry(retry: object) -> Retry | None:
    """As `check_retry`; the journal also limits how often a step can be tried."""
    checked = check_retry(retry)
    if checked is not None and checked.max_retries >= MAX_TRIES:
        raise invalid_input("max_retries", checked.max_retries, f"must be at most {MAX_TRIES - 1}")
    return checked
