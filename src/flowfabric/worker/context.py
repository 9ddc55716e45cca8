"""The context of a handler: its execution, its lease, its children."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload
from uuid import UUID

import msgspec

from flowfabric.errors import ChildFailed, LeaseLost
from flowfabric.ids import ExecutionId
from flowfabric.joins import Disposition
from flowfabric.states import AttemptType
from flowfabric.worker.child_batch import Child, ChildCall
from flowfabric.worker.children import Children
from flowfabric.worker.repeat_while_leased import repeat_while_leased
from flowfabric.worker.upstreams import (
    ResultReader,
    UpstreamTask,
    read_result_of,
    read_results,
    read_results_of,
)

if TYPE_CHECKING:
    from flowfabric.db.rows import Connection
    from flowfabric.engine.engine import Engine
    from flowfabric.engine.joins.read_upstream_results import UpstreamResult
    from flowfabric.engine.lifecycle.sql.lease import Claimed
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


class Ctx:
    """The context of a running attempt: its execution, progress, children and lease.

    Its calls are repeated while the database is in trouble, until the lease is lost; then they
    raise `LeaseLost`.
    """

    __slots__ = ("_attempt", "_children", "_engine", "_loop", "_readers", "_transaction", "state")

    def __init__(
        self,
        attempt: RunningAttempt,
        engine: Engine,
        state: SimpleNamespace,
        transaction: HandlerTransaction,
        readers: Mapping[str, ResultReader],
    ) -> None:
        self._attempt = attempt
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
        return SyncCtx(self, self._loop)

    async def progress(self, percent: int | None = None, message: str | None = None) -> None:
        """Store how far the attempt has come; raises `LeaseLost` when the lease is not held."""
        lease = self._attempt.lease
        refusal = await self._repeated(
            lambda: self._engine.progress(lease, percent=percent, message=message)
        )
        if refusal is not None:
            raise LeaseLost(str(refusal)) from refusal

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
        transaction is rolled back when the handler raises, when its lease is lost, and when the
        attempt is suspended to wait for children. The handler must not commit it, and should keep
        it short.
        """
        return await self._repeated(self._transaction.begin)

    def check(self) -> None:
        """Raise `LeaseLost` if the lease is lost."""
        self._attempt.check_lease()

    async def _repeated(self, operation: Callable[[], Awaitable[T]]) -> T:
        return await repeat_while_leased(self._attempt, operation)

    # Children. While a handler waits for children its attempt is suspended and holds no slot. Once
    # the join is decided the handler runs again, from the top, and each call finds its children by
    # its position among these calls.

    @overload
    async def gather(
        self,
        calls: Iterable[ChildCall[T]],
        *,
        concurrency: int | None = None,
        return_exceptions: Literal[False] = False,
    ) -> list[T]: ...
    @overload
    async def gather(
        self,
        calls: Iterable[ChildCall[T]],
        *,
        concurrency: int | None = None,
        return_exceptions: bool,
    ) -> list[T | ChildFailed]: ...
    async def gather(
        self,
        calls: Iterable[ChildCall[Any]],
        *,
        concurrency: int | None = None,
        return_exceptions: bool = False,
    ) -> list[Any]:
        """Run the calls as children and return their results, in the order given.

        The first child that fails raises `ChildFailed` at once, while the others keep running. With
        `return_exceptions` all children are waited for, and errors are returned among the results.
        With `concurrency` at most that many children run at a time: the next one starts when
        another ends, and after a failure no further child is started.
        """
        children = self._own_children()
        gather = children.gather_outcomes if return_exceptions else children.gather
        return await gather(calls, concurrency)

    async def race(self, *calls: ChildCall[T]) -> T:
        """The result of the first child that succeeds; the others are cancelled.

        Raises `ChildFailed` when all have failed.
        """
        return await self._own_children().race(calls)

    async def quorum(
        self,
        k: int,
        calls: Iterable[ChildCall[T]],
        *,
        on_satisfied: Disposition = "cancel_remaining",
    ) -> list[T]:
        """The results of the first `k` children that succeed, in the order of the calls.

        The others are cancelled, or with `let_run` keep running. Raises `ChildFailed` as soon as
        too many have failed.
        """
        return await self._own_children().quorum(k, calls, on_satisfied)

    async def spawn(self, call: ChildCall[T], *, detached: bool = False) -> Child[T]:
        """Start a child and continue; `await child.result()` waits for it.

        A detached child is not cancelled with its parent, and its parent cannot wait for it.
        """
        return await self._own_children().spawn(call, detached=detached)

    def _own_children(self) -> Children:
        """The children of this attempt; raises `Fail` where a handler cannot have children."""
        if self._children is None:
            self._children = Children(self._attempt, self._engine)
        return self._children


class SyncCtx:
    """The blocking form of the context's coroutines; must not be called on the event loop."""

    def __init__(self, ctx: Ctx, loop: asyncio.AbstractEventLoop) -> None:
        self._ctx, self._loop = ctx, loop

    def progress(self, percent: int | None = None, message: str | None = None) -> None:
        self._wait(self._ctx.progress(percent, message))

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

    @overload
    def gather(
        self,
        calls: Iterable[ChildCall[T]],
        *,
        concurrency: int | None = None,
        return_exceptions: Literal[False] = False,
    ) -> list[T]: ...
    @overload
    def gather(
        self,
        calls: Iterable[ChildCall[T]],
        *,
        concurrency: int | None = None,
        return_exceptions: bool,
    ) -> list[T | ChildFailed]: ...
    def gather(
        self,
        calls: Iterable[ChildCall[Any]],
        *,
        concurrency: int | None = None,
        return_exceptions: bool = False,
    ) -> list[Any]:
        gather = self._ctx.gather(
            calls, concurrency=concurrency, return_exceptions=return_exceptions
        )
        return self._wait(gather)

    def race(self, *calls: ChildCall[T]) -> T:
        return self._wait(self._ctx.race(*calls))

    def quorum(
        self,
        k: int,
        calls: Iterable[ChildCall[T]],
        *,
        on_satisfied: Disposition = "cancel_remaining",
    ) -> list[T]:
        return self._wait(self._ctx.quorum(k, calls, on_satisfied=on_satisfied))

    def spawn(self, call: ChildCall[T], *, detached: bool = False) -> SyncChild[T]:
        child = self._wait(self._ctx.spawn(call, detached=detached))
        return SyncChild(child, self._wait)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class SyncChild(Generic[T]):
    """The blocking form of `Child`, for a handler that runs in a thread."""

    def __init__(self, child: Child[T], wait: Callable[[Coroutine[Any, Any, T]], T]) -> None:
        self._child, self._wait = child, wait
        self.execution_id = child.execution_id

    def result(self) -> T:
        """The child's result, once it has ended; raises `ChildFailed` if it did not succeed."""
        return self._wait(self._child.result())
