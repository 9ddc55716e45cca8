"""Batch handlers: one call for many executions of a task, each with its own outcome."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast, get_args, get_origin, get_type_hints

import msgspec

from flowfabric.errors import ConfigError, Fail, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.policy import milliseconds
from flowfabric.worker.context import Ctx

MAX_SIZE: Final = 1000


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Up to `size` executions in one call, which waits at most `wait` seconds for them.

    Raises `ValidationError` for a size that is not 1 to 1000, and for a negative wait.
    """

    size: int
    wait: float | timedelta = 0.0

    def __post_init__(self) -> None:
        if type(self.size) is not int or not 1 <= self.size <= MAX_SIZE:
            raise invalid_input("size", self.size, f"must be a whole number from 1 to {MAX_SIZE}")
        if milliseconds(self.wait, field="wait") < 0:
            raise invalid_input("wait", self.wait, "must not be negative")

    @property
    def wait_seconds(self) -> float:
        return milliseconds(self.wait, field="wait") / 1000


class BatchCtx:
    """What a batch handler gets instead of a context: it can make no durable calls."""

    def __init__(self, contexts: Sequence[Ctx]) -> None:
        self.execution_ids: list[ExecutionId] = [each.execution_id for each in contexts]
        """The executions, in the order of the items."""
        self.state: SimpleNamespace = contexts[0].state
        """Values that handlers of the app share."""
        self._kind = contexts[0].claimed.execution_kind

    if not TYPE_CHECKING:  # a type checker knows what there is

        def __getattr__(self, name: str) -> NoReturn:
            if hasattr(Ctx, name):
                why = f"a batch handler has no ctx.{name}: it can make no durable calls"
                raise ConfigError("task", self._kind, why)
            raise AttributeError(name)


class _Waiting(msgspec.Struct, frozen=True):
    ctx: Ctx
    item: Any
    outcome: asyncio.Future[Any]


class BatchCollector:
    """Calls the handler when enough executions have come, or the first has waited long enough.

    Executions of different keys of a limit are never in one call. Each execution holds its slot in
    the worker, and its lease is renewed, until the call has ended.
    """

    def __init__(self, kind: str, function: Callable[..., Any], batch: Batch) -> None:
        self._kind, self._function, self._batch = kind, function, batch
        self._waiting: dict[int | None, list[_Waiting]] = {}
        self._timers: dict[int | None, asyncio.TimerHandle] = {}
        self._calls: set[asyncio.Task[None]] = set()

    async def join(self, ctx: Ctx, item: Any) -> Any:
        """The result of this execution; raises what the handler raised or returned for it."""
        key = ctx.claimed.quota_key_id
        loop = asyncio.get_running_loop()
        mine = _Waiting(ctx, item, loop.create_future())
        group = self._waiting.setdefault(key, [])
        group.append(mine)
        if len(group) >= self._batch.size:
            self._call(key)
        elif len(group) == 1:
            self._timers[key] = loop.call_later(self._batch.wait_seconds, self._call, key)
        try:
            return await mine.outcome
        finally:
            if mine in self._waiting.get(key, []):  # cancelled before the call began
                self._leave(key, mine)

    def _leave(self, key: int | None, mine: _Waiting) -> None:
        self._waiting[key].remove(mine)
        if not self._waiting[key]:  # the next one to come waits as long as the first did
            self._close(key)

    def _close(self, key: int | None) -> list[_Waiting]:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        return self._waiting.pop(key, [])

    def _call(self, key: int | None) -> None:
        group = self._close(key)
        if group:
            task = asyncio.create_task(self._run(group), name=f"flowfabric batch {self._kind}")
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    async def _run(self, group: Sequence[_Waiting]) -> None:
        try:
            ctx = BatchCtx([each.ctx for each in group])
            outcomes = _outcomes(
                await self._function(ctx, [each.item for each in group]), len(group)
            )
        except BaseException as error:
            for each in group:
                if not each.outcome.done():
                    each.outcome.set_exception(_copied(error))
            if not isinstance(error, Exception):
                raise
            return
        for each, outcome in zip(group, outcomes, strict=True):
            if each.outcome.done():
                continue
            if isinstance(outcome, BaseException):
                each.outcome.set_exception(outcome)
            else:
                each.outcome.set_result(outcome)


def _outcomes(returned: object, wanted: int) -> list[Any]:
    """One outcome for each item; None means that all succeeded without a result."""
    if returned is None:
        return [None] * wanted
    if not isinstance(returned, list | tuple):
        kind = type(returned).__name__
        raise Fail(f"a batch handler returns a list or None, not {kind}", retryable=False)
    found = list(cast("Sequence[Any]", returned))
    if len(found) != wanted:
        why = f"a batch handler of {wanted} items returned {len(found)} results"
        raise Fail(why, retryable=False)
    return found


def _copied(error: BaseException) -> BaseException:
    """The error for one execution: a cancelled call is an ordinary failure of each."""
    if isinstance(error, asyncio.CancelledError):
        return RuntimeError("the call of the batch was cancelled")
    return error


def batch_function(kind: str, function: Callable[..., Any], batch: Batch) -> Callable[..., Any]:
    """The function that runs one execution by joining a batch.

    Raises `ConfigError` unless `function` is `async def f(ctx: BatchCtx, items: list[T])`.
    """
    wanted = "write async def f(ctx: BatchCtx, items: list[T]) -> list[R] | None"
    if not inspect.iscoroutinefunction(function):
        raise ConfigError("task", kind, f"a batch handler is async; {wanted}")
    names = list(inspect.signature(function).parameters)
    if len(names) != 2:
        raise ConfigError("task", kind, f"a batch handler has two parameters; {wanted}")
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise ConfigError("task", kind, f"annotation cannot be resolved: {error}") from None
    if hints.get(names[0], BatchCtx) not in (BatchCtx, Any):
        raise ConfigError("task", kind, f"its first parameter must be of type BatchCtx; {wanted}")
    items = hints.get(names[1], list[Any])
    if get_origin(items) is not list:
        raise ConfigError("task", kind, f"its second parameter must be a list; {wanted}")
    [item_type] = get_args(items)
    collector = BatchCollector(kind, function, batch)

    async def one(ctx: Ctx, item: Any) -> Any:
        return await collector.join(ctx, item)

    one.__name__, one.__qualname__ = function.__name__, function.__qualname__
    one.__doc__, one.__module__ = function.__doc__, function.__module__
    one.__annotations__ = {"ctx": Ctx, "item": item_type, "return": Any}
    return one
