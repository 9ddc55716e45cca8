"""The results of upstreams, decoded to what their tasks return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from flowfabric.engine.joins.read_upstream_results import UpstreamResult
from flowfabric.errors import Fail, NotFound, ResultDecodeError
from flowfabric.states import PublicState
from flowfabric.wire import read_untyped

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ResultReader: TypeAlias = Callable[[bytes | None, str | None], Any]
"""Decodes a stored result, given with its encoding."""


class UpstreamTask(Protocol[T_co]):
    """A task whose results a handler reads; `flowfabric.Task` is one."""

    @property
    def kind(self) -> str: ...
    def read_result(self, result: bytes | None, _encoding: str | None = None, /) -> T_co: ...


def read_results(
    upstreams: Sequence[UpstreamResult], readers: Mapping[str, ResultReader]
) -> dict[str, Any]:
    """The results of those that succeeded, by name; `readers` are the tasks of this worker.

    The result of a task that the worker does not know is decoded without a type.
    """
    return {
        name_of(each): _read(each, readers.get(each.execution_kind, read_untyped))
        for each in upstreams
        if each.public_state == PublicState.COMPLETED
    }


def read_results_of(upstreams: Sequence[UpstreamResult], task: UpstreamTask[T]) -> dict[str, T]:
    """The results of those that ran this task and succeeded, by name."""
    return {
        name_of(each): _read(each, task.read_result)
        for each in upstreams
        if each.public_state == PublicState.COMPLETED and each.execution_kind == task.kind
    }


def read_result_of(
    upstreams: Sequence[UpstreamResult], task: UpstreamTask[T], name: str | None
) -> T:
    """The result of the upstream that ran this task; raises `NotFound`, `Fail`."""
    results = read_results_of(upstreams, task)
    if name is not None:
        results = {name: results[name]} if name in results else {}
    if not results:
        wanted = task.kind if name is None else f"{name} ({task.kind})"
        raise NotFound("upstream that succeeded", wanted)
    if len(results) > 1:
        raise Fail(
            f"{len(results)} upstreams ran {task.kind!r}: name one of {', '.join(results)}",
            retryable=False,
        )
    return next(iter(results.values()))


def name_of(upstream: UpstreamResult) -> str:
    """The member name of the upstream, else its id."""
    return upstream.name or str(upstream.execution_id)


def _read(upstream: UpstreamResult, read: Callable[[bytes | None, str | None], T]) -> T:
    try:
        return read(upstream.result, upstream.result_encoding)
    except ResultDecodeError as error:
        raise error.of(upstream.execution_id) from error.__cause__
