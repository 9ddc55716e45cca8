"""The context of a handler: its execution, its lease, its children."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, overload
from uuid import UUID

import msgspec

from flowfabric.engine.schedules.definition import INSTANT_TAG
from flowfabric.engine.streams.frame import DEFAULT_TTL
from flowfabric.errors import LeaseLost
from flowfabric.ids import ExecutionId
from flowfabric.states import AttemptType
from flowfabric.worker.budget_calls import BudgetCalls
from flowfabric.worker.durable.calls import DurableCalls
from flowfabric.worker.durable.children import Children
from flowfabric.worker.durable.sync_calls import SyncDurableCalls
from flowfabric.worker.repeat_while_leased import repeat_while_leased
from flowfabric.worker.stream_calls import StreamCalls
from flowfabric.worker.upstreams import (
    ResultReader,
    UpstreamTask,
    read_result_of,
    read_results,
    read_results_of,
)

if TYPE_CHECKING:
    from flowfabric.db.rows import Connection
    from flowfabric.engine.budgets.release_budget import BudgetReleased
    from flowfabric.engine.budgets.usage import UsageOutcome
    from flowfabric.engine.joins.read_upstream_results import UpstreamResult
    from flowfabric.engine.lifecycle.sql.lease import Claimed
    from flowfabric.engine.streams.frame import NewFrame
    from flowfabric.remote.engine_like import EngineLike
    from flowfabric.worker.durable.durable import Durable, LazyDurable
    from flowfabric.worker.frame_writer import FrameWriter
    from flowfabric.worker.running_attempt import RunningAttempt
    from flowfabric.worker.transaction import HandlerTransaction

T = TypeVar("T")


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """For the user's own conditional writes: unique to this claim; the epoch only grows."""

    lease_id: UUID
    lease_epoch: int
    attempt_id: UUID


class LeaseHealth:
    """The state of the lease of a running attempt."""

    def __init__(self, attempt: RunningAttempt) -> None:
        self._attempt = attempt

    @property
    def healthy(self) -> bool:
        """Is the lease held, with fewer than three failed renewals in a row?"""
        return self._attempt.healthy

    @property
    def failures(self) -> int:
        """How many renewals have failed since the last one that succeeded."""
        return self._attempt.failures

    @property
    def lost(self) -> asyncio.Event:
        """Set when the lease is lost."""
        return self._attempt.lost_event


class Ctx(DurableCalls, StreamCalls, BudgetCalls):
    """The context of a running attempt: its execution, progress, stream, children and lease.

    Its calls are repeated while the database is in trouble, until the lease is lost; then they
    raise `LeaseLost`.
    """

    __slots__ = (
        "_attempt",
        "_children",
        "_durable",
        "_engine",
        "_frames",
        "_loop",
        "_readers",
        "_transaction",
        "handler_thread",
        "state",
    )

    def __init__(
        self,
        attempt: RunningAttempt,
        engine: EngineLike,
        state: SimpleNamespace,
        transaction: HandlerTransaction,
        readers: Mapping[str, ResultReader],
        durable: LazyDurable,
        frames: FrameWriter,
    ) -> None:
        self._attempt = attempt
        self._durable = durable
        self._frames = frames
        self.handler_thread: int | None = None
        """The thread of a plain handler, which alone may use `sync`."""
        self._readers = readers
        self._transaction = transaction
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._children: Children | None = None
        self.state = state
        """What the application put into `app.state`."""

    @property
    def claimed(self) -> Claimed:
        """The claimed execution, as the engine returned it."""
        return self._attempt.claimed

    @property
    def execution_id(self) -> ExecutionId:
        return self._attempt.execution_id

    @property
    def attempt_index(self) -> int:
        return self._attempt.lease.attempt_index

    @property
    def attempt_type(self) -> AttemptType:
        return self._attempt.claimed.attempt_type

    @property
    def kind(self) -> str:
        return self._attempt.claimed.execution_kind

    @property
    def lane(self) -> str:
        return self._attempt.claimed.lane_id

    @property
    def tags(self) -> dict[str, str]:
        return self._attempt.claimed.tags

    @property
    def scheduled_at(self) -> datetime | None:
        """The instant of the schedule that the execution is for; None without a schedule."""
        at = self._attempt.claimed.tags.get(INSTANT_TAG)
        return None if at is None else datetime.fromisoformat(at)

    @property
    def payload(self) -> bytes:
        """The payload as it was submitted."""
        return self._attempt.claimed.input_payload

    @property
    def lease(self) -> LeaseHealth:
        return LeaseHealth(self._attempt)

    @property
    def fence(self) -> Fence:
        lease = self._attempt.lease
        return Fence(
            lease_id=lease.lease_id, lease_epoch=lease.lease_epoch, attempt_id=lease.attempt_id
        )

    @property
    def sync(self) -> SyncCtx:
        """The blocking form of these calls, for a handler that runs in a thread."""
        return SyncCtx(self, self._loop, self.handler_thread)

    async def progress(self, percent: int | None = None, message: str | None = None) -> None:
        """Store how far the attempt has come; raises `LeaseLost` when the lease is not held.

        While the handler repeats what this attempt has done before, nothing is stored.
        """
        if self._durable.repeats:
            return
        lease = self._attempt.lease
        refusal = await self._repeated(
            lambda: self._engine.progress(lease, percent=percent, message=message)
        )
        if refusal is not None:
            raise LeaseLost(str(refusal)) from refusal

    async def _append(self, frame: NewFrame) -> None:
        if not self._durable.repeats:
            await self._frames.add(self._attempt, frame)

    @overload
    async def upstreams(self) -> dict[str, Any]: ...
    @overload
    async def upstreams(self, task: UpstreamTask[T]) -> dict[str, T]: ...
    async def upstreams(self, task: UpstreamTask[Any] | None = None) -> dict[str, Any]:
        """The results of the upstream members that succeeded, by member name.

        With `task` only those that ran this task. Each is what its task returned, decoded to the
        annotation of the task. Empty for an execution that is not a member of a flow.
        """
        found = await self._upstream_results()
        return read_results(found, self._readers) if task is None else read_results_of(found, task)

    async def upstream(self, task: UpstreamTask[T], name: str | None = None) -> T:
        """The result of the upstream member that ran `task`, with the type that the task returns.

        `name` is the name of the member, needed if several upstreams ran this task. Raises
        `NotFound` if there is none, or if it did not succeed.
        """
        return read_result_of(await self._upstream_results(), task, name)

    async def _upstream_results(self) -> list[UpstreamResult]:
        """Every upstream with its state and stored result."""
        if self._attempt.claimed.flow_id is None:
            return []
        return await self._repeated(lambda: self._engine.read_upstream_results(self.execution_id))

    async def transaction(self) -> Connection:
        """A connection to FlowFabric's database, in a transaction that ends with this attempt.

        Its writes are committed together with the handler's result: both once, or neither. The
        transaction is rolled back when the handler raises and when its lease is lost. A wait that
        would have to give up the lease raises `TransactionOpen` meanwhile. The handler must not
        commit it, and should keep it short.
        """
        return await self._repeated(self._transaction.begin)

    def check(self) -> None:
        """Raise `LeaseLost` if the lease is lost."""
        self._attempt.check_lease()

    async def _repeated(self, operation: Callable[[], Awaitable[T]]) -> T:
        with self._durable.busy():
            return await repeat_while_leased(self._attempt, operation)

    # Budgets.

    async def _report(self, budget: UUID, amounts: dict[str, int], key: str) -> UsageOutcome:
        lease = self._attempt.lease
        return await self._repeated(
            lambda: self._engine.report_usage(lease, budget, amounts, dedup_key=key)
        )

    async def _spend(self, budget: UUID, amounts: dict[str, int], key: str) -> UsageOutcome:
        return await self._repeated(
            lambda: self._engine.record_spend(
                budget, self.execution_id, amounts, idempotency_key=key
            )
        )

    async def _release(self, budget: UUID | str) -> BudgetReleased:
        return await self._repeated(lambda: self._engine.give_back(budget, self.execution_id))

    # Durable calls.

    def _durable_calls(self) -> Durable:
        return self._durable.get()

    def _own_children(self) -> Children:
        if self._children is None:
            self._children = Children(self._durable.get())
        return self._children


class SyncCtx(SyncDurableCalls):
    """The blocking form of the context's coroutines; must not be called on the event loop."""

    def __init__(
        self, ctx: Ctx, loop: asyncio.AbstractEventLoop, thread: int | None = None
    ) -> None:
        self._ctx, self._loop, self._thread = ctx, loop, thread

    def progress(self, percent: int | None = None, message: str | None = None) -> None:
        self._wait(self._ctx.progress(percent, message))

    def emit(
        self, frame_type: str, value: object = b"", *, correlation_id: str | None = None
    ) -> None:
        self._wait(self._ctx.emit(frame_type, value, correlation_id=correlation_id))

    def live(
        self,
        frame_type: str,
        value: object = b"",
        *,
        ttl: float | timedelta = DEFAULT_TTL,
        correlation_id: str | None = None,
    ) -> None:
        self._wait(self._ctx.live(frame_type, value, ttl=ttl, correlation_id=correlation_id))

    def patch(self, document: Mapping[str, Any]) -> None:
        self._wait(self._ctx.patch(document))

    def set_state(self, document: Mapping[str, Any]) -> None:
        self._wait(self._ctx.set_state(document))

    def use(
        self,
        budget: UUID | str,
        amounts: Mapping[str, int] | None = None,
        /,
        *,
        dedup: str | None = None,
        raise_on_hard: bool = True,
        **more: int,
    ) -> UsageOutcome:
        return self._wait(
            self._ctx.use(budget, amounts, dedup=dedup, raise_on_hard=raise_on_hard, **more)
        )

    def spend(
        self,
        budget: UUID | str,
        amounts: Mapping[str, int] | None = None,
        /,
        *,
        dedup: str | None = None,
        raise_on_hard: bool = True,
        **more: int,
    ) -> UsageOutcome:
        return self._wait(
            self._ctx.spend(budget, amounts, dedup=dedup, raise_on_hard=raise_on_hard, **more)
        )

    def give_back(self, budget: UUID | str) -> BudgetReleased:
        return self._wait(self._ctx.give_back(budget))

    @overload
    def upstreams(self) -> dict[str, Any]: ...
    @overload
    def upstreams(self, task: UpstreamTask[T]) -> dict[str, T]: ...
    def upstreams(self, task: UpstreamTask[Any] | None = None) -> dict[str, Any]:
        work = self._ctx.upstreams() if task is None else self._ctx.upstreams(task)
        return self._wait(work)

    def upstream(self, task: UpstreamTask[T], name: str | None = None) -> T:
        return self._wait(self._ctx.upstream(task, name))

    def check(self) -> None:
        self._ctx.check()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
