"""What `@app.task(...)` returns, for the type checker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from flowfabric.app.batch import BatchCtx
from flowfabric.app.task import Task
from flowfabric.worker.context import Ctx

P = ParamSpec("P")
R = TypeVar("R")
I = TypeVar("I")  # noqa: E741  the type of an item


class Registrar(Protocol):
    """Registers an async or a plain function as a task."""

    @overload
    def __call__(
        self, function: Callable[[BatchCtx, list[I]], Awaitable[Sequence[Any] | None]]
    ) -> Task[[I], Any]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Ctx, P], Awaitable[R]]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Ctx, P], R]) -> Task[P, R]: ...
