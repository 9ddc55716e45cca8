"""Dependencies of a handler: a factory makes them, and cleans up afterwards."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any, Literal, TypeVar, get_type_hints, overload

from flowfabric.app.overrides import Override, Overrides
from flowfabric.errors import ConfigError
from flowfabric.worker.context import Ctx
from flowfabric.worker.environment import ProcessScope

T = TypeVar("T")
Scope = Literal["task", "process"]


class Dependency:
    """The default value that marks a parameter as a dependency."""

    def __init__(self, factory: Callable[..., Any], scope: Scope) -> None:
        self.factory, self.scope = factory, scope


# One signature per form of the factory: mypy does not find `T` in a union of the four.
@overload
def Depends(factory: Callable[..., AsyncGenerator[T, Any]], *, scope: Scope = ...) -> T: ...
@overload
def Depends(factory: Callable[..., Generator[T, Any, Any]], *, scope: Scope = ...) -> T: ...
@overload
def Depends(factory: Callable[..., Awaitable[T]], *, scope: Scope = ...) -> T: ...
@overload
def Depends(factory: Callable[..., T], *, scope: Scope = ...) -> T: ...
def Depends(  # noqa: N802  reads as a declaration in a signature
    factory: Callable[..., Any], *, scope: Scope = "task"
) -> Any:
    """The default of a handler's parameter: the handler is given what `factory` makes.

    The factory may be plain or async, and may yield once to clean up after the task. It may
    have a parameter of type `Ctx`, and dependencies of its own. With `scope="process"` the factory
    is called once per worker process. Raises `ConfigError` for something that is no factory.
    """
    if not callable(factory) or isinstance(factory, Dependency):
        raise ConfigError(
            "dependency", "factory", f"{factory!r} is not a function; write Depends(get_it)"
        )
    if scope not in ("task", "process"):
        raise ConfigError("dependency", "scope", f"{scope!r} must be 'task' or 'process'")
    return Dependency(factory, scope)


class Plan:
    """How the dependencies of one function are resolved; parameters are checked when created."""

    def __init__(self, function: Callable[..., Any], *, owner: str, overrides: Overrides) -> None:
        self._overrides = overrides
        self._dependencies: list[tuple[str, Dependency, Plan]] = []
        self._context: list[str] = []
        for name, parameter in inspect.signature(function).parameters.items():
            if isinstance(parameter.default, Dependency):
                dependency = parameter.default
                plan = Plan(dependency.factory, owner=f"{owner}: {name}", overrides=overrides)
                plan.refuse_unknown(dependency.factory)
                self._dependencies.append((name, dependency, plan))
            elif takes_context(function, name):
                self._context.append(name)
        self._owner = owner

    @property
    def empty(self) -> bool:
        return not self._dependencies

    @property
    def names(self) -> set[str]:
        return {name for name, _, _ in self._dependencies}

    def refuse_unknown(self, factory: Callable[..., Any]) -> None:
        """Raise `ConfigError` for a parameter of the factory that nothing provides."""
        known = self.names | set(self._context)
        for name, parameter in inspect.signature(factory).parameters.items():
            optional = parameter.default is not inspect.Parameter.empty
            if (
                name not in known
                and not optional
                and parameter.kind
                not in (
                    inspect.Parameter.VAR_POSITIONAL,
                    inspect.Parameter.VAR_KEYWORD,
                )
            ):
                raise ConfigError("dependency", self._owner, f"nothing provides parameter {name!r}")

    def uses(self, factory: Callable[..., Any]) -> bool:
        """Does the function depend on what this factory makes, itself or through another one?"""
        return any(
            dependency.factory == factory or plan.uses(factory)
            for _, dependency, plan in self._dependencies
        )

    @property
    def overridden(self) -> bool:
        """Is a fake used for one of the dependencies, or below it?"""
        return bool(self._fakes(()))

    async def resolve(
        self,
        ctx: Ctx,
        stack: contextlib.AsyncExitStack,
        process_scope: ProcessScope,
        *,
        process_scoped: bool = False,
        inside: tuple[Override, ...] = (),
    ) -> dict[str, Any]:
        """The arguments of the function: the context and its dependencies, by parameter.

        With `process_scoped` the function is a factory of that scope, and so are its dependencies.
        The caller then holds the lock of the scope. `inside` are the overrides whose fakes are
        being made: a fake that depends on what it replaces gets the real one.
        """
        arguments: dict[str, Any] = dict.fromkeys(self._context, ctx)
        for name, dependency, real in self._dependencies:
            factory, plan, within = self._chosen(dependency, real, inside)
            if dependency.scope == "task" and not process_scoped:
                given = await plan.resolve(ctx, stack, process_scope, inside=within)
                arguments[name] = await _make(factory, given, stack)
                continue
            key = (dependency.factory, *within[len(inside) :], *plan._fakes(within))
            if process_scoped:
                arguments[name] = await plan.make_once(factory, key, ctx, process_scope, within)
            else:
                async with process_scope.lock:
                    arguments[name] = await plan.make_once(factory, key, ctx, process_scope, within)
        return arguments

    async def make_once(
        self,
        factory: Callable[..., Any],
        key: tuple[object, ...],
        ctx: Ctx,
        process_scope: ProcessScope,
        inside: tuple[Override, ...],
    ) -> Any:
        """What `factory` makes for the process; the caller holds the lock of the scope.

        The value is kept under `key`: its factory, and the overrides that it was made with.
        """
        if key not in process_scope.made:
            arguments = await self.resolve(
                ctx, process_scope.stack, process_scope, process_scoped=True, inside=inside
            )
            process_scope.made[key] = await _make(factory, arguments, process_scope.stack)
        return process_scope.made[key]

    def _chosen(
        self, dependency: Dependency, plan: Plan, inside: tuple[Override, ...]
    ) -> tuple[Callable[..., Any], Plan, tuple[Override, ...]]:
        """The factory to call for a dependency, its plan, and the overrides it is made inside."""
        override = self._overrides.of(dependency.factory, but_not=inside)
        if override is None:
            return dependency.factory, plan, inside
        return override.fake, override.plan, (*inside, override)

    def _fakes(self, inside: tuple[Override, ...]) -> tuple[Override, ...]:
        """The overrides that the dependencies of the function are made with."""
        if not self._overrides.open:
            return ()
        found: list[Override] = []
        for _, dependency, real in self._dependencies:
            _, plan, within = self._chosen(dependency, real, inside)
            found += [*within[len(inside) :], *plan._fakes(within)]
        return tuple(found)


def takes_context(function: Callable[..., Any], name: str) -> bool:
    """Is this parameter annotated as the context?"""
    try:
        return get_type_hints(function).get(name) is Ctx
    except (NameError, TypeError):
        return False


async def _make(
    factory: Callable[..., Any], arguments: dict[str, Any], stack: contextlib.AsyncExitStack
) -> Any:
    if inspect.isasyncgenfunction(factory):
        return await stack.enter_async_context(contextlib.asynccontextmanager(factory)(**arguments))
    if inspect.isgeneratorfunction(factory):
        return stack.enter_context(contextlib.contextmanager(factory)(**arguments))
    made = factory(**arguments)
    return await made if inspect.isawaitable(made) else made
