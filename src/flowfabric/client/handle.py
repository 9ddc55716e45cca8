"""A handle on a submitted execution."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import msgspec

from flowfabric.app.task import Call
from flowfabric.client.create_in_chunks import without_conflict
from flowfabric.errors import (
    EngineError,
    ExecutionCancelled,
    ExecutionExpired,
    ExecutionFailed,
    ExecutionSkipped,
    IdempotencyConflict,
    NotFound,
    ResultDecodeError,
    ResultTimeout,
    TransportError,
    invalid_input,
)
from flowfabric.ids import ExecutionId
from flowfabric.policy import timeout_seconds
from flowfabric.states import FrameVisibility, PublicState

if TYPE_CHECKING:
    from flowfabric.client.client import Client
    from flowfabric.engine.events.read_history import HistoryPage
    from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
    from flowfabric.engine.executions.explanation import Explanation
    from flowfabric.engine.executions.list_attempts import Attempt
    from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
    from flowfabric.engine.journal.list_steps import StepPage
    from flowfabric.engine.journal.rewind_journal import ReplayFrom
    from flowfabric.engine.lifecycle.create_execution import Creation
    from flowfabric.engine.streams.frame import Frame
    from flowfabric.engine.suspensions.send_signal import SignalAnswer

R = TypeVar("R")
T = TypeVar("T")


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
        declares. The error of a timeout says what a suspended execution waits for.
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
            why = await self._why_suspended()
            raise ResultTimeout(self.execution_id, seconds or 0.0, explanation=why) from None
        return self._read(outcome)

    @overload
    async def state(self) -> PublicState: ...
    @overload
    async def state(self, *, type: type[T]) -> T | None: ...
    async def state(self, *, type: Any = None) -> Any:  # noqa: A002  as in `ctx.wait_for_signal`
        """The state of the execution now; raises `NotFound`.

        With `type` the state that its handler keeps by `ctx.patch` and `ctx.set_state`, decoded to
        that type: of the newest attempt that has one, at any time, also after the end. None if the
        handler has kept none. Raises `ValidationError` if it is not of that type.
        """
        found = await self._client.engine.read_execution_state(self.execution_id)
        if found is None:
            raise NotFound("execution", self.execution_id)
        if type is None:
            return found
        kept = await self._client.engine.read_state(self.execution_id)
        if kept is None:
            return None
        try:
            return msgspec.json.decode(kept.document_json, type=type)
        except msgspec.ValidationError as error:
            raise invalid_input("state", None, f"of the handler does not decode: {error}") from None

    async def stream(
        self,
        *,
        attempt: int | None = None,
        after: str | None = None,
        visibility: FrameVisibility = FrameVisibility.ALL,
        follow: bool = True,
    ) -> AsyncGenerator[Frame]:
        """The frames that the handler emits, in order, until the execution has ended.

        A retry goes on with the frames of the next attempt; with `attempt` only those of one are
        read. `after` is the `cursor` of the last frame that was read: nothing is missed, and
        nothing comes twice. With `visibility="exclude_best_effort"` the frames of `ctx.live` are
        left out, and with `follow=False` only what is there now is read. Raises `NotFound`, and
        `ValidationError` for a cursor that is none.
        """
        frames = await self._client.engine.follow_stream(
            self.execution_id, attempt=attempt, after=after, visibility=visibility, follow=follow
        )
        async with contextlib.aclosing(frames):
            async for frame in frames:
                yield frame

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

    async def signal(
        self, name: str, payload: object = None, *, idempotency_key: str | None = None
    ) -> SignalAnswer:
        """Send a signal: the handler gets it from `ctx.wait_for_signal(name)`, now or later.

        Signals of one name are received in the order in which they were sent, and each once. Of
        several with the same `idempotency_key` the first counts. The answer is `resumed` if the
        execution was suspended and goes on by it, and `duplicate` for a repeated key. Raises
        `NotFound`, `TargetNotSignalable` if the execution has ended, and `ValidationError`.
        """
        return await self._client.signals.send(
            self.execution_id,
            name,
            payload,
            identity=self._client.identity,
            idempotency_key=idempotency_key,
        )

    async def replay(
        self,
        reason: str | None = None,
        *,
        from_: ReplayFrom = "failure",
        from_step: str | None = None,
        downstream: bool = True,
    ) -> None:
        """Run the ended execution again; `result` then waits for the new result.

        What its handler has recorded stays done, except for the failure that ended it. With
        `from_="start"` the handler begins with an empty journal, and with `from_step` before the
        first call of that name. Members of its flow that were skipped because of it wait again,
        unless `downstream=False`.
        """
        await self._client.engine.replay_execution(
            self.execution_id,
            from_=from_,
            from_step=from_step,
            downstream=downstream,
            actor=self._client.identity,
            reason=reason,
        )

    async def steps(
        self, *, after_seq: int | None = None, limit: int = 1000, values: bool = False
    ) -> StepPage:
        """The durable calls of the handler, in the order in which they were recorded.

        At most `limit` (1000); `next_after_seq` of a page leads to the next one. With `values` also
        what the calls returned, as stored. Raises `NotFound`.
        """
        return await self._client.engine.list_steps(
            self.execution_id, after_seq=after_seq, limit=limit, values=values
        )

    async def compensation(self) -> Handle[Any] | None:
        """The execution that undoes what this one did before it ended without success.

        None if nothing was armed, or it has not been made yet. Raises `NotFound`.
        """
        found = await self._client.engine.read_compensation(self.execution_id)
        return None if found is None else self._client.handle(found)

    async def explain(self) -> Explanation:
        """Why the execution does not run, or how it ended, and what would change that."""
        return await self._client.engine.explain_execution(self.execution_id)

    async def history(self, *, cursor: str | None = None, limit: int = 1000) -> HistoryPage:
        """Events of the execution in order, from its submit on: at most `limit` (1000).

        The `next_cursor` of a page leads to the next one.
        """
        return await self._client.engine.read_history(self.execution_id, cursor=cursor, limit=limit)

    async def set_tag(self, key: str, value: str) -> None:
        """Set a tag of the execution."""
        await self._client.engine.set_execution_tag(self.execution_id, key, value)

    async def _why_suspended(self) -> str | None:
        """What a suspended execution waits for; None if it is not, or nobody answers."""
        engine = self._client.engine
        try:
            if await engine.read_execution_state(self.execution_id) is not PublicState.SUSPENDED:
                return None
            decisive = (await engine.explain_execution(self.execution_id)).reasons[0]
        except (EngineError, TransportError):
            return None
        return f"{decisive.message}; {decisive.remedy}"

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


def new_handle(
    client: Client,
    call: Call[R],
    own_id: ExecutionId | None,
    answer: Creation,
    *,
    committed: bool,
) -> Handle[R]:
    """The handle of one call; as `new_handles`. Without `own_id` it has no idempotency key."""
    if isinstance(answer, IdempotencyConflict):
        raise answer
    return Handle(
        client,
        answer.execution_id,
        created=own_id is None or answer.execution_id == own_id,
        known_to_exist=committed,
        read_result=call.task.read_result,
    )


def new_handles(
    client: Client,
    calls: Sequence[Call[R]],
    own_ids: Sequence[ExecutionId],
    answers: list[Creation],
    *,
    committed: bool,
) -> list[Handle[R]]:
    """A handle for each call, on the execution that was created or found for it.

    `own_ids` are those that were made for the calls; another one is that of an earlier submit.
    `committed` is False when the caller's own transaction is still to be committed. Raises the
    first `IdempotencyConflict` among the answers.
    """
    readers = {call.task: call.task.read_result for call in calls}
    return [
        Handle(
            client,
            answer.execution_id,
            # A duplicate with the id made here is this submit, repeated after a lost answer.
            created=answer.execution_id == own_id,
            known_to_exist=committed,
            read_result=readers[call.task],
        )
        for call, own_id, answer in zip(calls, own_ids, without_conflict(answers), strict=True)
    ]
