"""How the result of one member becomes the input of another: whole, or as one argument."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, get_args

from flowfabric.app.codec import JSON, MSGPACK
from flowfabric.app.passable import (
    Field,
    fields_of,
    fields_passable,
    is_mapping,
    is_meant_for,
    is_model,
    passable,
    shown,
)
from flowfabric.errors import invalid_input
from flowfabric.joins import ARGUMENT, AllOf

if TYPE_CHECKING:
    from flowfabric.app.member import Member
    from flowfabric.app.task import Task

WHOLE: Final = "result"
"""The `data_passing_ref` of an edge whose result becomes the whole input."""


def passing_ref(upstream: Member[Any], member: Member[Any], feed: bool | str) -> str | None:
    """The `data_passing_ref` of the edge between them; None if no result is passed.

    With True, the result becomes the only argument of the task, or the only one that its type is
    meant for. An object whose fields are the arguments of the task becomes the whole input. A text
    names the argument. Raises `ValidationError` if the result does not fit, if it is meant for no
    argument, or for several.
    """
    if feed is False:
        return None
    source, target = upstream.call.task, member.call.task
    if not target.arguments:
        raise invalid_input("feed", feed, f"task {target.kind!r} takes no argument")
    if isinstance(feed, str) and feed not in target.arguments:
        known = ", ".join(target.arguments)
        why = f"is no argument of task {target.kind!r}; its arguments are {known}"
        raise invalid_input("feed", feed, why)
    if target.takes_whole_payload:
        [(name, wanted)] = target.arguments.items()
        if not passable(source.returns, wanted.annotation):
            _refuse(upstream, target, name)
        return WHOLE
    if isinstance(feed, str):
        if not passable(source.returns, target.arguments[feed].annotation):
            _refuse(upstream, target, feed)
        return _argument(upstream, member, feed)
    return _chosen(upstream, member)


def check_inputs(member: Member[Any], upstreams: Mapping[str, str | None]) -> None:
    """Raise `ValidationError` if two results of an all-of would become the same argument.

    With another policy only the upstream that decides the join passes its result.
    """
    seen: dict[str, str] = {}
    for name, ref in upstreams.items():
        if ref is None:
            continue
        if ref != WHOLE and ref in seen:
            argument = ref.removeprefix(ARGUMENT)
            why = f"would replace the result of {seen[ref]!r} as {argument!r} of {member.name!r}"
            raise invalid_input("feed", name, f"{why}: {_INSTEAD}")
        seen[ref] = name
    if WHOLE in seen and len(seen) > 1:
        why = f"would replace the whole input of {member.name!r}, with the results of the others"
        raise invalid_input("feed", seen[WHOLE], f"{why}: {_INSTEAD}")


def check_fed(member: Member[Any]) -> None:
    """Raise `ValidationError` if the member lacks an argument that no upstream feeds.

    All upstreams of an any-of or a quorum must feed it, because any of them may decide the join.
    """
    refs = member.upstreams.values()
    for name in sorted(member.missing):
        fed = [ref in (WHOLE, ARGUMENT + name) for ref in refs]
        if any(fed) if member.policy == AllOf() else all(fed):
            continue
        raise invalid_input(
            "feed",
            name,
            f"is missing: no upstream of {member.name!r} feeds it"
            if not any(fed)
            else f"is missing: not every upstream of {member.name!r} feeds it, and any may decide",
        )


_INSTEAD: Final = "name another argument, or let the handler read ctx.upstreams()"


def _chosen(upstream: Member[Any], member: Member[Any]) -> str:
    """The reference for `feed=True`."""
    source, target = upstream.call.task, member.call.task
    possible = [
        name for name, each in target.arguments.items() if passable(source.returns, each.annotation)
    ]
    fitting = possible
    if len(target.arguments) > 1 and source.returns is not Any:
        annotations = {name: each.annotation for name, each in target.arguments.items()}
        fitting = [name for name in possible if is_meant_for(source.returns, annotations[name])]
    if len(fitting) == 1 and not _holds_arguments(source.returns, target, fitting[0]):
        return _argument(upstream, member, fitting[0])
    if source.returns is Any or _may_hold_arguments(source.returns, target):
        return WHOLE
    if not possible:
        _refuse(upstream, target, *target.arguments)
    fits = f"fits {' and '.join(map(repr, fitting))}" if fitting else "is the type of no argument"
    names = " or ".join(f"feed={name!r}" for name in fitting or possible)
    raise invalid_input(
        "feed",
        True,
        f"does not say which argument: {_returned(upstream)}, which {fits} of task {target.kind!r}"
        f" ({_listed(target, *target.arguments)}): name the argument with {names}",
    )


def _holds_arguments(returns: Any, target: Task[..., Any], fitting: str) -> bool:
    """Has the result a field for each argument, and is not itself what the argument takes?"""
    fields = fields_of(returns)
    if fields is None or target.arguments[fitting].annotation == returns:
        return False
    return _have_arguments(fields, target)


def _may_hold_arguments(returns: Any, target: Task[..., Any]) -> bool:
    """Is the result an object with the arguments of the task, as far as its type tells?"""
    fields = fields_of(returns)
    if fields is not None:
        return _have_arguments(fields, target)
    if is_mapping(returns):
        value = Field((*get_args(returns), Any)[1 if get_args(returns) else 0], required=True)
        return fields_passable(dict.fromkeys(target.arguments, value), target.arguments)
    return is_model(returns)


def _have_arguments(fields: Mapping[str, Field], target: Task[..., Any]) -> bool:
    named = fields.keys() & target.arguments.keys()
    return bool(named) and fields_passable(fields, target.arguments)


def _argument(upstream: Member[Any], member: Member[Any], name: str) -> str:
    for task in (upstream.call.task, member.call.task):
        if task.codec_name not in (JSON.name, MSGPACK.name):
            raise invalid_input(
                "feed",
                name,
                f"task {task.kind!r} has the codec {task.codec_name!r}: a result becomes an"
                " argument only between tasks with the JSON or the MessagePack codec",
            )
    return ARGUMENT + name


def _refuse(upstream: Member[Any], target: Task[..., Any], *names: str) -> NoReturn:
    taken = _listed(target, *names)
    why = f"does not fit: {_returned(upstream)}, and task {target.kind!r} takes {taken}"
    raise invalid_input("feed", upstream.name, why)


def _listed(target: Task[..., Any], *names: str) -> str:
    return ", ".join(f"{name}: {shown(target.arguments[name].annotation)}" for name in names)


def _returned(upstream: Member[Any]) -> str:
    task = upstream.call.task
    return f"task {task.kind!r} returns {shown(task.returns)}"
