"""The handler of the built-in kind that makes the compensations of an execution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from flowfabric.engine.journal.compensation import (
    COMPENSATE_KIND,
    CompensationCall,
    CompensationInput,
)
from flowfabric.errors import ChildFailed, Fail
from flowfabric.policy import ExecutionPolicy
from flowfabric.wire import read_untyped
from flowfabric.worker.handler import EncodedResult, Handler

if TYPE_CHECKING:
    from flowfabric.worker.context import Ctx


class _StoredLimit(msgspec.Struct, frozen=True):
    """A limit, by its id."""

    quota_policy_id: UUID

    @property
    def limit(self) -> _StoredLimit:
        return self


class _StoredTask:
    """The settings that a stored call has of its task."""

    def __init__(self, call: CompensationCall) -> None:
        self.kind, self.lane = call.execution_kind, call.lane_id
        self.encoding = call.payload_encoding or "json"
        self.priority, self.requires = call.priority, call.required_capabilities
        limit = call.quota_policy_id
        self.limit = None if limit is None else _StoredLimit(limit)
        self.merged = None
        self.policy = None if call.policy is None else ExecutionPolicy.parse(call.policy)

    def read_result(self, result: bytes | None, _encoding: str | None = None, /) -> Any:
        return read_untyped(result, _encoding)


class _StoredCall(msgspec.Struct, frozen=True):
    task: _StoredTask
    payload: bytes
    limit_key: str | None = None


def compensator() -> Handler:
    """Runs executions of kind `ff.compensate`."""
    return Handler(kind=COMPENSATE_KIND, run=_compensate)


async def _compensate(ctx: Ctx, payload: bytes, _encoding: str | None) -> EncodedResult:
    """Make the calls as children, one after the other; one that fails does not stop the others."""
    failed: list[str] = []
    for call in CompensationInput.decode(payload).calls:
        try:
            await ctx.gather([_StoredCall(_StoredTask(call), call.payload, call.limit_key)])
        except ChildFailed as error:
            failed.append(f"{call.execution_kind} {error.execution_id}: {error.reason}")
    if failed:
        raise Fail(f"compensations failed: {'; '.join(failed)}", retryable=False)
    return EncodedResult()
