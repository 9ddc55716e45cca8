"""What callers of the public classes meet: their methods, and every type that these mention."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from flowfabric import App, Client, Flow, FlowHandle, Handle, Task, Worker
from flowfabric.client.admin import Admin
from flowfabric.engine import Engine
from flowfabric.worker.context import Ctx, SyncCtx

CALLED = (
    Engine,
    *Engine.__bases__,
    Client,
    Handle,
    FlowHandle,
    Admin,
    App,
    Task,
    Flow,
    Worker,
    Ctx,
    SyncCtx,
)
# The connection is the driver's, and `Engine` fills it in.
_UNRESOLVED = {"Connection": object}


class Method(NamedTuple):
    """One public method or property; one of `Engine` stands for its operation."""

    owner: type
    name: str
    function: Callable[..., Any]
    is_property: bool

    @property
    def parameters(self) -> list[str]:
        """Those that a caller gives."""
        return list(inspect.signature(self.function).parameters)[1:]

    def hints(self) -> dict[str, Any]:
        """The annotations of what a caller gives and gets."""
        hints = get_type_hints(self.function, localns=_UNRESOLVED)
        return {name: hints[name] for name in (*self.parameters, "return") if name in hints}

    def __str__(self) -> str:
        return f"{self.owner.__name__}.{self.name}"


def methods(owner: type) -> Iterator[Method]:
    """The public methods and properties that a class defines."""
    for name, value in vars(owner).items():
        if name.startswith("_") and name != "__init__":
            continue
        found = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not inspect.isfunction(found):
            continue
        yield Method(owner, name, inspect.unwrap(found), isinstance(value, property))


def types_in(hint: Any) -> Iterator[type]:
    """The classes of this package that an annotation mentions."""
    origin = get_origin(hint)
    for part in (hint, origin):
        if isinstance(part, type) and part.__module__.split(".")[0] == "flowfabric":
            yield part
    for argument in get_args(hint):
        for each in argument if isinstance(argument, list) else [argument]:
            yield from types_in(each)


def types_met(owner: type) -> dict[type, str]:
    """Every type that a caller of `owner` meets, also in fields, and where it was found first."""
    met: dict[type, str] = {}

    def meet(hint: Any, where: str) -> None:
        for kind in types_in(hint):
            if kind in met:
                continue
            met[kind] = where
            if issubclass(kind, msgspec.Struct):
                for field, inner in get_type_hints(kind).items():
                    meet(inner, f"{kind.__name__}.{field}")
                for method in methods(kind):
                    if method.is_property:
                        meet(method.hints()["return"], str(method))

    for method in methods(owner):
        if method.name == "__init__":
            continue  # an engine is made by `connect`
        for name, hint in method.hints().items():
            meet(hint, f"{method}({name})")
    return met
