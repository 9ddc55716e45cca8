"""Executions that differ in id and payload only, as columns: a batch has them by the hundred."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload
from uuid import UUID

from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId

if TYPE_CHECKING:
    from flowfabric.engine.lifecycle.create_execution import NewExecution


class AlikeBatch(Sequence["NewExecution"]):
    """`first`, and others like it with these partitions, UUIDs and payloads.

    What they share is checked and stored once, and an execution is made only if it is asked for.
    Raises `ValidationError` for a `first` with an idempotency key, which no two executions share,
    and for a payload that cannot be stored.
    """

    def __init__(
        self,
        first: NewExecution,
        homes: Sequence[int],
        uuids: Sequence[UUID],
        payloads: Sequence[bytes],
    ) -> None:
        if first.idempotency_key is not None:
            raise ValidationError("invalid_input", "executions that are alike have no key")
        own = first.execution_id
        if payloads:
            first.like(own, max(payloads, key=len))  # which checks it
        self.first = first
        self.homes, self.uuids = [own.partition_key, *homes], [own.uuid, *uuids]
        self.payloads = [first.input_payload, *payloads]
        self.are_distinct = len(set(self.uuids)) == len(self.uuids)

    def __len__(self) -> int:
        return len(self.uuids)

    @overload
    def __getitem__(self, at: int) -> NewExecution: ...
    @overload
    def __getitem__(self, at: slice) -> list[NewExecution]: ...
    def __getitem__(self, at: int | slice) -> NewExecution | list[NewExecution]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        return self.first.like(self.execution_id(at), self.payloads[at])

    def execution_id(self, at: int) -> ExecutionId:
        """The id of one of them."""
        return ExecutionId(self.homes[at], self.uuids[at])

    @property
    def execution_ids(self) -> list[ExecutionId]:
        """The ids of all, in their order."""
        return list(map(ExecutionId, self.homes, self.uuids))
