"""A handle on a submitted execution."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

from flowfabric.engine.events.read_history import HistoryEntry
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.engine.executions.explanation import Explanation
from flowfabric.engine.executions.list_attempts import Attempt
from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
from flowfabric.errors import (
    ExecutionCancelled,
    ExecutionExpired,
    ExecutionFailed,
    ExecutionSkipped,
    NotFound,
    ResultDecodeError,
    ResultTimeout,
)
from flowfabric.ids import ExecutionId
from flowfabric.policy import timeout_seconds
from flowfabric.states import PublicState

if TYPE_CHECKING:
    from flowfabric.client.client import Client

R = TypeVar("R")


class Handle(Generic[R]):
    """One execution: wait for its result, describe it, cancel it, replay it."""

    def __init__(
        self,
        client: Client,
        execution_id: ExecutionId,
        *,
        created: bool,
        known_to_exist: bool,
        read_result: Callable[[bytes | None, str | None], R],
    ) -> None:
        self._client, self._read_result = client, read_result
        self._known_to_exist = known_to_exist
        self.execution_id = execution_id
        self.created = created
        """False when the idempotency key matched an earlier submit."""

    def __repr__(self) -> str:
        return f"<handle of {self.execution_id}>"

    async def result(self, timeout: float | timedelta | None = None) -> R:
        """The result, once the execution has ended.

        Raises `ExecutionFailed`, `ExecutionCancelled`, `ExecutionExpired` or `ExecutionSkipped` if
        it ended without success, `ResultTimeout` if it has not ended in time, `NotFound` if it does
        not exist, `ResultDecodeError` if the stored result is not of the type that the task
        declares.
        """
        seconds = timeout_seconds(timeout)
        if seconds is not None and seconds <= 0:
            found = await self._client.engine.read_outcomes([self.execution_id])
            if self.execution_id in found:
                return self._read(found[self.execution_id])
        await self._must_exist()
        try:
            async with asyncio.timeout(seconds):
                outcome = await self._client.outcomes.wait(self.execution_id)
        except TimeoutError:
            raise ResultTimeout(self.execution_id, seconds or 0.0) from None
        return self._read(outcome)

    async def state(self) -> PublicState:
        """The state of the execution now; raises `NotFound`."""
        found = await self._client.engine.read_execution_state(self.execution_id)
        if found is None:
            raise NotFound("execution", self.execution_id)
        return found

    async def describe(self, *, with_body: bool = False) -> ExecutionSnapshot:
        """The execution with its state, attempt, lease and times; raises `NotFound`.

        With `with_body` also its payload, its result and the traceback of its last attempt, as
        stored.
        """
        found = await self._client.engine.describe_execution(self.execution_id, with_body=with_body)
        if found is None:
            raise NotFound("execution", self.execution_id)
        return found

    async def attempts(self) -> list[Attempt]:
        """The attempts, from the first to the latest."""
        return await self._client.engine.list_attempts(self.execution_id)

    async def cancel(self, reason: str = "cancelled by its submitter") -> None:
        """End the execution without a result, in whatever state it is; may be repeated."""
        await self._client.engine.cancel_execution(
            self.execution_id, reason=reason, actor=self._client.identity
        )

    async def replay(self, reason: str | None = None, *, downstream: bool = True) -> None:
        """Run the ended execution again; `result` then waits for the new result.

        Members of its flow that were skipped because of it wait again, unless `downstream=False`.
        """
        await self._client.engine.replay_execution(
            self.execution_id, downstream=downstream, actor=self._client.identity, reason=reason
        )

    async def explain(self) -> Explanation:
        """Why the execution does not run, or how it ended, and what would change that."""
        return await self._client.engine.explain_execution(self.execution_id)

    async def history(self) -> list[HistoryEntry]:
        """The events of the execution, in order: leases, completions, operator actions."""
        return await self._client.engine.read_history(self.execution_id)

    async def set_tag(self, key: str, value: str) -> None:
        """Set a tag of the execution."""
        await self._client.engine.set_execution_tag(self.execution_id, key, value)

    async def _must_exist(self) -> None:
        if not self._known_to_exist:
            await self.state()
            self._known_to_exist = True

    def _read(self, outcome: ExecutionOutcome) -> R:
        match outcome.public_state:
            case PublicState.COMPLETED:
                try:
                    return self._read_result(outcome.result, outcome.result_encoding)
                except ResultDecodeError as error:
                    raise error.of(self.execution_id) from error.__cause__
            case PublicState.CANCELLED:
                raise ExecutionCancelled(
                    self.execution_id, outcome.cancellation_reason, outcome.cancelled_by
                )
            case PublicState.EXPIRED:
                raise ExecutionExpired(
                    self.execution_id, outcome.failure_reason, outcome.expired_because
                )
            case PublicState.SKIPPED:
                raise ExecutionSkipped(self.execution_id)
            case _:
                raise ExecutionFailed(
                    self.execution_id, outcome.failure_reason, outcome.failure_category
                )
