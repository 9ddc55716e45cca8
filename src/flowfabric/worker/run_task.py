"""Runs a task: decode the payload, resolve dependencies, call through middleware, encode."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol, TypeAlias, runtime_checkable

from flowfabric.worker.context import Ctx
from flowfabric.worker.environment import Environment, ProcessScope
from flowfabric.worker.handler import EncodedResult, Handler

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
    async with contextlib.AsyncExitStack() as stack:

        async def innermost() -> Any:
            resolved = await task.plan.resolve(ctx, stack, environment.process_scope)
            given = {**arguments, **_without_context(resolved, ctx)}
            return await _invoke(task, environment.threads, ctx, given)

        call = innermost
        for middleware in reversed(task.middleware):
            call = partial(middleware, ctx, call)
        try:
            result = await call()
        except BaseException as error:
            raised = error
            raise
    if raised is not None:
        raise raised  # even if the cleanup of a dependency swallowed it: the attempt failed
    return task.encode_result(result, encoding)


async def _invoke(
    task: RunnableTask, threads: Executor, ctx: Ctx, arguments: dict[str, Any]
) -> Any:
    if task.is_async:
        return await task.function(ctx, **arguments)
    loop = asyncio.get_running_loop()
    variables = contextvars.copy_context()
    call = partial(task.function, ctx, **arguments)
    work = loop.run_in_executor(threads, lambda: variables.run(_caught, call))
    try:
        result, raised = await asyncio.shield(work)
    except asyncio.CancelledError:
        # A thread cannot be stopped: the slot is in use until the function returns.
        while not work.done() and not ctx.abandoned:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((work,))
        raise
    if raised is not None:
        raise raised
    return result


def _caught(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """The result or the exception, as values: a future refuses some exceptions."""
    try:
        return call(), None
    except BaseException as error:
        return None, error


def _without_context(resolved: dict[str, Any], ctx: Ctx) -> dict[str, Any]:
    return {name: value for name, value in resolved.items() if value is not ctx}
