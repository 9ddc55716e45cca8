"""Runs a task: decode the payload, resolve dependencies, call through middleware, encode."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from flowfabric.worker.context import Ctx
from flowfabric.worker.environment import Environment, ProcessScope
from flowfabric.worker.handler import EncodedResult, Handler
from flowfabric.worker.threads import Returned

log: Final = logging.getLogger("flowfabric.worker")
_cleanups: Final[set[asyncio.Task[None]]] = set()
"""Keeps the running cleanups from being collected."""

Middleware: TypeAlias = Callable[[Ctx, Callable[[], Awaitable[Any]]], Awaitable[Any]]


class Dependencies(Protocol):
    """Resolves the dependencies of a function; `flowfabric.app.depends.Plan` is one."""

    @property
    def empty(self) -> bool: ...
    @property
    def overridden(self) -> bool: ...
    async def resolve(
        self, ctx: Ctx, stack: contextlib.AsyncExitStack, process_scope: ProcessScope, /
    ) -> dict[str, Any]: ...


@runtime_checkable
class RunnableTask(Protocol):
    """What a worker needs of a task; `flowfabric.Task` is one."""

    kind: str
    state: SimpleNamespace
    function: Callable[..., Any]
    is_async: bool
    in_process: bool
    middleware: Sequence[Middleware]

    @property
    def plan(self) -> Dependencies: ...
    def decode(self, payload: bytes, encoding: str | None) -> dict[str, Any]: ...
    def encode_result(self, result: object, encoding: str | None) -> EncodedResult: ...
    def read_result(self, result: bytes | None, encoding: str | None = None) -> Any: ...
    def handler(self, environment: Environment) -> Handler: ...


async def run_task(
    task: RunnableTask, environment: Environment, ctx: Ctx, payload: bytes, encoding: str | None
) -> EncodedResult:
    """The encoded result of the task's function for this payload; raises what the function raises.

    A task with `executor="process"` runs in a child process if the environment has a process pool,
    but for a task with an overridden dependency: the fake exists in this process only.
    """
    if task.in_process and environment.processes is not None and not task.plan.overridden:
        return await environment.processes.run(ctx, task.function.__module__)
    arguments = task.decode(payload, encoding)
    if task.plan.empty and not task.middleware and task.is_async:
        return task.encode_result(await task.function(ctx, **arguments), encoding)
    raised: BaseException | None = None
    result: Any = None
    running: list[Returned] = []
    async with contextlib.AsyncExitStack() as stack:

        async def innermost() -> Any:
            resolved = await task.plan.resolve(ctx, stack, environment.process_scope)
            given = {**arguments, **_without_context(resolved, ctx)}
            if task.is_async:
                return await task.function(ctx, **given)
            call = partial(_in_own_thread, ctx, partial(task.function, ctx, **given))
            in_context = partial(contextvars.copy_context().run, call)
            return await environment.threads.run(task.kind, in_context, running)

        call = innermost
        for middleware in reversed(task.middleware):
            call = partial(middleware, ctx, call)
        try:
            result = await call()
        except BaseException as error:
            raised = error
            raise
        finally:
            if any(not each.done() for each in running):
                _clean_up_later(running, stack.pop_all())
    if raised is not None:
        raise raised  # even if the cleanup of a dependency swallowed it: the attempt failed
    return task.encode_result(result, encoding)


def _in_own_thread(ctx: Ctx, call: Callable[[], Any]) -> Any:
    """Call a plain handler; `ctx.sync` knows its thread meanwhile."""
    ctx.handler_thread = threading.get_ident()
    try:
        return call()
    finally:
        ctx.handler_thread = None


def _clean_up_later(running: list[Returned], stack: contextlib.AsyncExitStack) -> None:
    """A stuck thread may still use its dependencies: they are cleaned up when it returns."""

    async def clean_up() -> None:
        await asyncio.wait(running)
        try:
            await stack.aclose()
        except Exception:
            log.warning("the cleanup of a dependency failed", exc_info=True)

    task = asyncio.create_task(clean_up(), name="flowfabric cleanup")
    _cleanups.add(task)
    task.add_done_callback(_cleanups.discard)


def _without_context(resolved: dict[str, Any], ctx: Ctx) -> dict[str, Any]:
    return {name: value for name, value in resolved.items() if value is not ctx}
