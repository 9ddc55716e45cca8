"""Executions that differ in id and payload only, as columns: a batch has them by the hundred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, overload
from uuid import UUID

from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId

if TYPE_CHECKING:
    from flowfabric.engine.lifecycle.create_execution import NewExecution

_number: Final = attrgetter("int")  # the hash of a UUID is slower


class Pattern:
    """What such executions share: all of `example` but its id and payload.

    Raises `ValidationError` for an example with an idempotency key, which no two executions share.
    """

    __slots__ = ("columns", "example")

    def __init__(self, example: NewExecution) -> None:
        if example.idempotency_key is not None:
            raise ValidationError("invalid_input", "executions that are alike have no key")
        self.example = example
        self.columns: SharedColumns | None = None
        """Made with the first batch."""


class SharedColumns(NamedTuple):
    """The parameters of the statement that creates executions of one pattern, but their ids."""

    of_batch: Mapping[str, object]
    of_each: Mapping[str, list[object]]
    """Those that have a value for each execution, for one."""


class AlikeBatch(Sequence["NewExecution"]):
    """Executions of one pattern, with these partitions, UUIDs and payloads.

    What they share is checked and stored once, and an execution is made only if it is asked for.
    Raises `ValidationError` for a payload that cannot be stored.
    """

    def __init__(
        self,
        pattern: Pattern,
        homes: Sequence[int],
        uuids: Sequence[UUID],
        payloads: Sequence[bytes],
    ) -> None:
        for each in _to_check(payloads):
            pattern.example.like(pattern.example.execution_id, each)  # which checks it
        self.pattern = pattern
        self.homes, self.uuids, self.payloads = list(homes), list(uuids), list(payloads)
        self.are_distinct = len(set(map(_number, self.uuids))) == len(self.uuids)

    def __len__(self) -> int:
        return len(self.uuids)

    @overload
    def __getitem__(self, at: int) -> NewExecution: ...
    @overload
    def __getitem__(self, at: slice) -> AlikeBatch: ...
    def __getitem__(self, at: int | slice) -> NewExecution | AlikeBatch:
        if isinstance(at, slice):
            return AlikeBatch(self.pattern, self.homes[at], self.uuids[at], self.payloads[at])
        return self.pattern.example.like(self.execution_id(at), self.payloads[at])

    def execution_id(self, at: int) -> ExecutionId:
        """The id of one of them."""
        return ExecutionId(self.homes[at], self.uuids[at])

    @cached_property
    def execution_ids(self) -> list[ExecutionId]:
        """The ids of all, in their order."""
        return list(map(ExecutionId, self.homes, self.uuids))


def _to_check(payloads: Sequence[bytes]) -> Sequence[bytes]:
    """The longest one, if all are bytes."""
    return [max(payloads, key=len)] if set(map(type, payloads)) == {bytes} else payloads


def examples_of(executions: Sequence[NewExecution]) -> Sequence[NewExecution]:
    """Executions that have all there is of kinds and lanes."""
    return [executions.pattern.example] if type(executions) is AlikeBatch else executions


def ids_of(executions: Sequence[NewExecution]) -> list[ExecutionId]:
    """The ids of the executions, in their order."""
    if type(executions) is AlikeBatch:
        return executions.execution_ids
    return [new.execution_id for new in executions]
