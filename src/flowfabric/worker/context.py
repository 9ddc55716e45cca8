"""What a handler sees of its execution."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload
from uuid import UUID

import msgspec

from flowfabric.errors import ChildFailed, LeaseLost
from flowfabric.ids import ExecutionId
from flowfabric.joins import Disposition
from flowfabric.states import AttemptType, PublicState
from flowfabric.wire import read_untyped
from flowfabric.worker.child_batch import Child, ChildCall
from flowfabric.worker.children import Children

if TYPE_CHECKING:
    from flowfabric.db.rows import Connection
    from flowfabric.engine.engine import Engine
    from flowfabric.engine.lifecycle.sql.lease import Claimed
    from flowfabric.worker.running_attempt import RunningAttempt
    from flowfabric.worker.transaction import OwnTransaction

T = TypeVar("T")


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """For conditional writes of the user's own: unique to this claim, and growing."""

    lease_id: UUID
    lease_epoch: int
    attempt_id: UUID


class LeaseHealth:
    """How the lease of the running attempt is doing."""

    def __init__(self, running: RunningAttempt) -> None:
        self._running = running

    @property
    def healthy(self) -> bool:
        """RunningAttempt, with fewer than three failed renewals in a row."""
        return not self._running.lost and self._running.failures < 3

    @property
    def failures(self) -> int:
        return self._running.failures

    @property
    def lost(self) -> asyncio.Event:
        """Set when the lease is gone."""
        if self._running.on_lost is None:
            self._running.on_lost = asyncio.Event()
            if self._running.lost:
                self._running.on_lost.set()
        return self._running.on_lost


class Ctx:
    """The running attempt: who it is, how to report progress, whether its lease still holds."""

    __slots__ = ("_children", "_engine", "_loop", "_own", "_running", "state")

    def __init__(
        self, running: RunningAttempt, engine: Engine, state: SimpleNamespace, own: OwnTransaction
    ) -> None:
        self._running = running
        self._own = own
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._children: Children | None = None
        self.state = state
        """What the application put into `app.state`."""

    @property
    def abandoned(self) -> bool:
        """Has the worker given up waiting for this handler?"""
        return self._running.abandoned

    @property
    def claimed(self) -> Claimed:
        """What was claimed, as the engine gave it."""
        return self._running.claimed

    @property
    def execution_id(self) -> ExecutionId:
        return self._running.claimed.lease.execution_id

    @property
    def attempt_index(self) -> int:
        return self._running.claimed.lease.attempt_index

    @property
    def attempt_type(self) -> AttemptType:
        return self._running.claimed.attempt_type

    @property
    def kind(self) -> str:
        return self._running.claimed.execution_kind

    @property
    def lane(self) -> str:
        return self._running.claimed.lane_id

    @property
    def tags(self) -> dict[str, str]:
        return self._running.claimed.tags

    @property
    def payload(self) -> bytes:
        """The payload as it was submitted."""
        return self._running.claimed.input_payload

    @property
    def lease(self) -> LeaseHealth:
        return LeaseHealth(self._running)

    @property
    def fence(self) -> Fence:
        lease = self._running.claimed.lease
        return Fence(
            lease_id=lease.lease_id, lease_epoch=lease.lease_epoch, attempt_id=lease.attempt_id
        )

    @property
    def sync(self) -> SyncCtx:
        """The same calls for a handler that runs in a thread."""
        return SyncCtx(self, self._loop)

    async def progress(self, percent: int | None = None, message: str | None = None) -> None:
        """Store how far the attempt has come; raises `LeaseLost` when it is no longer ours."""
        self.check()
        refusal = await self._engine.progress(
            self._running.claimed.lease, percent=percent, message=message
        )
        if refusal is not None:
            raise LeaseLost(str(refusal)) from refusal

    async def upstreams(self) -> dict[str, Any]:
        """What the members it waited for returned, by name; of those that succeeded.

        Empty for an execution that is no member of a flow.
        """
        if self._running.claimed.flow_id is None:
            return {}
        found = await self._engine.read_upstream_results(self.execution_id)
        return {
            each.name or str(each.execution_id): read_untyped(each.result, each.payload_encoding)
            for each in found
            if each.public_state == PublicState.COMPLETED
        }

    async def transaction(self) -> Connection:
        """A connection to FlowFabric's database, in a transaction that ends with this attempt.

        What is written on it is committed together with what the handler returns: both happen,
        once, or neither does. It is rolled back when the handler raises, loses its lease or puts
        itself down to wait for children. Nobody else may commit it, and it should be short.
        """
        self.check()
        return await self._own.begin()

    def check(self) -> None:
        """Raise `LeaseLost` if the lease is gone."""
        if self._running.lost:
            raise LeaseLost(f"the lease of {self.execution_id} is gone")

    # Children. A handler that waits for them lets go of its slot and runs again, from the top, once
    # it is decided: each call then finds its children by its place among these calls.

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
        """Run the calls as children; what they returned, in the order given.

        The first that fails raises `ChildFailed` at once, while the others run on; with
        `return_exceptions` all are waited for, and the errors stand among the results. With
        `concurrency` at most that many are there at a time that have not ended: the next ones are
        started as others end, and none any more once one has failed.
        """
        family = self._family()
        gather = family.gather_ends if return_exceptions else family.gather
        return await gather(calls, concurrency)

    async def race(self, *calls: ChildCall[T]) -> T:
        """What the first child that succeeds returned; the others are cancelled.

        Raises `ChildFailed` when all have failed.
        """
        return await self._family().race(calls)

    async def quorum(
        self,
        k: int,
        calls: Iterable[ChildCall[T]],
        *,
        on_satisfied: Disposition = "cancel_remaining",
    ) -> list[T]:
        """What the first `k` children that succeed returned, in the order of the calls.

        The others are cancelled, or with `let_run` left alone. Raises `ChildFailed` as soon as too
        many have failed.
        """
        return await self._family().quorum(k, calls, on_satisfied)

    async def spawn(self, call: ChildCall[T], *, detached: bool = False) -> Child[T]:
        """Start a child and go on; `await child.result()` waits for it.

        A detached one is not cancelled when its parent is, and nobody can wait for it here.
        """
        return await self._family().spawn(call, detached=detached)

    def _family(self) -> Children:
        """The children of this attempt."""
        if self._children is None:
            self._children = Children(self._running, self._engine)
        return self._children


class SyncCtx:
    """Blocking twins of the context's coroutines; never to be called on the event loop."""

    def __init__(self, ctx: Ctx, loop: asyncio.AbstractEventLoop) -> None:
        self._ctx, self._loop = ctx, loop

    def progress(self, percent: int | None = None, message: str | None = None) -> None:
        self._wait(self._ctx.progress(percent, message))

    def upstreams(self) -> dict[str, Any]:
        return self._wait(self._ctx.upstreams())

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
    """A child, for a handler that runs in a thread."""

    def __init__(self, child: Child[T], wait: Callable[[Coroutine[Any, Any, T]], T]) -> None:
        self._child, self._wait = child, wait
        self.execution_id = child.execution_id

    def result(self) -> T:
        """What it returned, as soon as it has ended; raises `ChildFailed` if it did not return."""
        return self._wait(self._child.result())
