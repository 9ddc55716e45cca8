"""How a handler starts child executions, and waits for them without holding a slot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from flowfabric.engine.lifecycle.delay import Delayed, DelayRequest
from flowfabric.engine.lifecycle.wait_children import ChildWait, NothingToWaitFor, WaitingChildren
from flowfabric.errors import (
    ChildFailed,
    ExecutionNotActive,
    LeaseExpired,
    LeaseLost,
    NotFound,
    StaleLease,
    invalid_input,
)
from flowfabric.ids import ExecutionId, GroupId
from flowfabric.joins import AllOf, AnyOf, Disposition, JoinPolicy, Quorum
from flowfabric.states import GroupState, PublicState
from flowfabric.worker.child_batch import Child, ChildBatch, ChildCall, child_failed
from flowfabric.worker.repeat_while_leased import repeat_while_leased

if TYPE_CHECKING:
    from flowfabric.engine.engine import Engine
    from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
    from flowfabric.engine.joins.read_join import Join
    from flowfabric.engine.joins.read_window import ChildWindow
    from flowfabric.worker.running_attempt import RunningAttempt

R = TypeVar("R")
T = TypeVar("T")

_REPLAYED_CHILD_DELAY: Final = 1.0
"""After how many seconds an attempt checks again a child that was replayed."""


class AttemptSuspended(BaseException):
    """Raised in a handler whose attempt was suspended to wait; it runs again later, from the top.

    Not an `Exception`, so that a handler's own `except Exception` does not catch it.
    """


class Children:
    """The children of one running attempt.

    The calls of a handler are numbered: when the handler runs again, each call finds the children
    of its number.
    """

    def __init__(self, attempt: RunningAttempt, engine: Engine) -> None:
        self._attempt, self._engine = attempt, engine
        self._lease = attempt.lease
        self._position = 0
        self._lock = asyncio.Lock()

    async def gather(
        self, calls: Iterable[ChildCall[R]], concurrency: int | None = None
    ) -> list[R]:
        """The results of all children; raises `ChildFailed` as soon as one has failed."""
        batch = self._next_batch(calls)
        if concurrency is None:
            return await self._all(batch) if batch.calls else []
        window = await self._run_window(batch, concurrency, until_failure=True)
        if window.lost:
            raise await self._failure_of(window.lost[0])
        return [batch.result(outcome) for outcome in await self._outcomes(batch.calls)]

    async def gather_outcomes(
        self, calls: Iterable[ChildCall[R]], concurrency: int | None = None
    ) -> list[R | ChildFailed]:
        """The result or the error of each child, once all have ended."""
        batch = self._next_batch(calls)
        if concurrency is not None:
            await self._run_window(batch, concurrency, until_failure=False)
        elif batch.calls:
            # A quorum of more than all children is decided when the last child has ended.
            await self._decided(batch, Quorum(len(batch.calls) + 1, "let_run"))
        return [
            batch.result(outcome)
            if outcome.public_state is PublicState.COMPLETED
            else child_failed(outcome)
            for outcome in await self._outcomes(batch.calls)
        ]

    async def race(self, calls: Iterable[ChildCall[R]]) -> R:
        """The result of the first child that succeeds."""
        batch = self._next_batch(calls)
        if not batch.calls:
            raise invalid_input("calls", 0, "must be at least one to race")
        [winner] = await self._first(batch, 1, AnyOf())
        return winner

    async def quorum(
        self, k: int, calls: Iterable[ChildCall[R]], on_satisfied: Disposition
    ) -> list[R]:
        """The results of the first `k` children that succeed."""
        batch = self._next_batch(calls)
        policy = Quorum(k, on_satisfied)
        if k > len(batch.calls):
            raise invalid_input("k", k, f"is more than the {len(batch.calls)} calls")
        return await self._first(batch, k, policy)

    async def spawn(self, call: ChildCall[R], *, detached: bool) -> Child[R]:
        """Start a child that runs while its parent continues."""
        batch = self._next_batch([call])
        await self._spawned(batch, None if detached else AllOf())
        [execution_id] = batch.calls

        async def result() -> R:
            if detached:
                raise invalid_input(
                    "child", str(execution_id), "is detached and cannot be waited for"
                )
            [only] = await self._all(batch)
            return only

        return Child(execution_id, result)

    def _next_batch(self, calls: Iterable[ChildCall[R]]) -> ChildBatch[R]:
        position, self._position = self._position, self._position + 1
        return ChildBatch(self._lease.execution_id, position, list(calls))

    async def _all(self, batch: ChildBatch[R]) -> list[R]:
        join = await self._decided(batch, AllOf())
        if join.group_state is not GroupState.SATISFIED:
            raise await self._first_failure(batch, join)
        return [batch.result(outcome) for outcome in await self._outcomes(batch.calls)]

    async def _first(self, batch: ChildBatch[R], k: int, policy: JoinPolicy) -> list[R]:
        """The results of the first `k` children that succeeded, in the order of the calls."""
        join = await self._decided(batch, policy)
        if join.group_state is not GroupState.SATISFIED:
            raise await self._first_failure(batch, join)
        first = join.succeeded[:k]
        outcomes = await self._outcomes([each for each in batch.calls if each in first])
        return [batch.result(outcome) for outcome in outcomes]

    async def _spawned(self, batch: ChildBatch[R], policy: JoinPolicy | None) -> Join | None:
        """Create the children, and the join of the parent unless `policy` is None (detached)."""
        executions = [batch.execution(child) for child in batch.calls]
        group = None if policy is None else batch.group
        async with self._lock:
            join = await self._fenced(
                lambda: self._engine.spawn_children(
                    self._lease, executions, group=group, policy=policy
                )
            )
            if policy is not None:
                self._attempt.has_children = True
            return join

    async def _run_window(
        self, batch: ChildBatch[R], concurrency: int, *, until_failure: bool
    ) -> ChildWindow:
        """Run the children, `concurrency` at a time, until all have ended.

        With `until_failure` returns as soon as one has failed. Each time some children have ended,
        the attempt runs again, starts as many others and is suspended again.
        """
        _check_concurrency(concurrency)
        groups = batch.groups()
        while True:
            async with self._lock:
                window = await self._fenced(lambda: self._engine.read_window(self._lease, groups))
                ended = len(window.succeeded) + len(window.lost)
                if ended == len(groups) or (until_failure and window.lost):
                    return window
                known = {*window.running, *window.succeeded, *window.lost}
                missing = (
                    (group, batch.execution(child))
                    for group, child in groups.items()
                    if child not in known
                )
                new = dict(islice(missing, max(0, concurrency - len(window.running))))
                if new:
                    await self._fenced(partial(self._engine.spawn_apart, self._lease, new))
                    self._attempt.has_children = True
            pending = [group for group, child in groups.items() if child in window.running]
            async with self._lock:
                await self._suspend(*pending, *new)

    async def _fenced(self, operation: Callable[[], Awaitable[T]]) -> T:
        """The answer of an operation that needs the lease; raises `LeaseLost`."""
        self._check()
        try:
            return await self._repeated(operation)
        except (NotFound, ExecutionNotActive, StaleLease, LeaseExpired) as refusal:
            self._lease_lost(refusal)

    async def _repeated(self, operation: Callable[[], Awaitable[T]]) -> T:
        return await repeat_while_leased(self._attempt, operation)

    async def _decided(self, batch: ChildBatch[R], policy: JoinPolicy) -> Join:
        """The join of the batch, decided; while it is pending the attempt is suspended."""
        join = await self._spawned(batch, policy)
        while join is None or join.group_state is GroupState.PENDING:
            async with self._lock:
                await self._suspend(batch.group)
            join = await self._repeated(lambda: self._engine.read_join(batch.group))
        return join

    async def _outcomes(self, children: Iterable[ExecutionId]) -> list[ExecutionOutcome]:
        """The outcomes of these children, in this order.

        If one of them runs again, because it was replayed, the attempt is delayed for a moment.
        """
        wanted = list(children)
        found = await self._repeated(lambda: self._engine.read_outcomes(wanted))
        if len(found) < len(wanted):
            async with self._lock:
                await self._delay()
        return [found[each] for each in wanted]

    async def _first_failure(self, batch: ChildBatch[R], join: Join) -> ChildFailed:
        """The error of the first child, in the order of the calls, that did not succeed."""
        return await self._failure_of(next(each for each in batch.calls if each in join.lost))

    async def _failure_of(self, child: ExecutionId) -> ChildFailed:
        outcome = (await self._repeated(lambda: self._engine.read_outcomes([child]))).get(child)
        if outcome is None or outcome.public_state is PublicState.COMPLETED:
            return ChildFailed(child, "failed", "the child was replayed since it failed")
        return child_failed(outcome)

    async def _suspend(self, *groups: GroupId) -> None:
        """Suspend the attempt until one of the joins is decided; return if one already is.

        Raises `AttemptSuspended`, or `LeaseLost`.
        """
        self._check()
        request = ChildWait(lease=self._lease, groups=groups)
        [answer] = await self._repeated(lambda: self._engine.wait_children([request]))
        match answer:
            case NothingToWaitFor():
                return
            case WaitingChildren():
                self._suspended()
            case refusal:
                self._lease_lost(refusal)

    async def _delay(self) -> NoReturn:
        """Suspend the attempt for a moment; raises `AttemptSuspended`, or `LeaseLost`."""
        self._check()
        request = DelayRequest(lease=self._lease, delay=_REPLAYED_CHILD_DELAY)
        [answer] = await self._repeated(lambda: self._engine.delay([request]))
        if isinstance(answer, Delayed):
            self._suspended()
        self._lease_lost(answer)

    def _check(self) -> None:
        if self._attempt.suspended:
            raise AttemptSuspended
        self._attempt.check_lease()

    def _suspended(self) -> NoReturn:
        self._attempt.suspended = self._attempt.finished = True
        raise AttemptSuspended

    def _lease_lost(self, refusal: Exception) -> NoReturn:
        self._attempt.lost = True
        if self._attempt.on_lost is not None:
            self._attempt.on_lost.set()
        raise LeaseLost(str(refusal)) from refusal


def _check_concurrency(concurrency: object) -> None:
    if not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1:
        raise invalid_input("concurrency", concurrency, "must be a whole number of at least 1")
