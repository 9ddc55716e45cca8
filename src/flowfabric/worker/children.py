"""Children of a running execution: how a handler starts them, and waits without holding a slot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from flowfabric.db.transaction import repeated
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

if TYPE_CHECKING:
    from flowfabric.engine.engine import Engine
    from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
    from flowfabric.engine.joins.read_join import Join
    from flowfabric.engine.joins.read_window import ChildWindow
    from flowfabric.worker.running_attempt import RunningAttempt

R = TypeVar("R")
T = TypeVar("T")

_LOOK_AGAIN: Final = 1.0


class Parked(BaseException):
    """Raised in a handler whose attempt was put down; it runs again, from the top, later."""


class Children:
    """The children of one running attempt, called in turn so that each call has its place."""

    def __init__(self, running: RunningAttempt, engine: Engine) -> None:
        self._running, self._engine = running, engine
        self._lease = running.claimed.lease
        self._position = 0
        self._turn = asyncio.Lock()

    async def gather(
        self, calls: Iterable[ChildCall[R]], concurrency: int | None = None
    ) -> list[R]:
        """What all of them returned; raises `ChildFailed` as soon as one has failed."""
        batch = self._next(calls)
        if concurrency is None:
            return await self._all(batch) if batch.calls else []
        window = await self._in_turn(batch, concurrency, until_lost=True)
        if window.lost:
            raise await self._failed(window.lost[0])
        return [batch.value(end) for end in await self._ends(batch.calls)]

    async def gather_ends(
        self, calls: Iterable[ChildCall[R]], concurrency: int | None = None
    ) -> list[R | ChildFailed]:
        """What each returned or failed with, once all have ended."""
        batch = self._next(calls)
        if concurrency is not None:
            await self._in_turn(batch, concurrency, until_lost=False)
        elif batch.calls:
            # More successes than there are children: decided when none of them runs any more.
            await self._decided(batch, Quorum(len(batch.calls) + 1, "let_run"))
        ends = await self._ends(batch.calls)
        return [
            batch.value(end) if end.public_state is PublicState.COMPLETED else child_failed(end)
            for end in ends
        ]

    async def race(self, calls: Iterable[ChildCall[R]]) -> R:
        """What the first that succeeds returned."""
        batch = self._next(calls)
        if not batch.calls:
            raise invalid_input("calls", 0, "must be at least one to race")
        [winner] = await self._first(batch, 1, AnyOf())
        return winner

    async def quorum(
        self, k: int, calls: Iterable[ChildCall[R]], on_satisfied: Disposition
    ) -> list[R]:
        """What the first `k` that succeed returned."""
        batch = self._next(calls)
        policy = Quorum(k, on_satisfied)
        if k > len(batch.calls):
            raise invalid_input("k", k, f"is more than the {len(batch.calls)} calls")
        return await self._first(batch, k, policy)

    async def spawn(self, call: ChildCall[R], *, detached: bool) -> Child[R]:
        """A child that runs while its parent goes on."""
        batch = self._next([call])
        await self._spawned(batch, None if detached else AllOf())
        [execution_id] = batch.calls

        async def result() -> R:
            if detached:
                raise invalid_input("child", str(execution_id), "is detached: nobody waits for it")
            [only] = await self._all(batch)
            return only

        return Child(execution_id, result)

    # The parts.

    def _next(self, calls: Iterable[ChildCall[R]]) -> ChildBatch[R]:
        position, self._position = self._position, self._position + 1
        return ChildBatch(self._lease.execution_id, position, list(calls))

    async def _all(self, batch: ChildBatch[R]) -> list[R]:
        join = await self._decided(batch, AllOf())
        if join.group_state is not GroupState.SATISFIED:
            raise await self._failure(batch, join)
        return [batch.value(end) for end in await self._ends(batch.calls)]

    async def _first(self, batch: ChildBatch[R], k: int, policy: JoinPolicy) -> list[R]:
        """What the first `k` that succeeded returned, in the order of the calls."""
        join = await self._decided(batch, policy)
        if join.group_state is not GroupState.SATISFIED:
            raise await self._failure(batch, join)
        first = join.succeeded[:k]
        ends = await self._ends([each for each in batch.calls if each in first])
        return [batch.value(end) for end in ends]

    async def _spawned(self, batch: ChildBatch[R], policy: JoinPolicy | None) -> Join | None:
        """The children exist; without a policy they are nobody's."""
        executions = [batch.execution(child) for child in batch.calls]
        group = None if policy is None else batch.group
        async with self._turn:
            found = await self._fenced(
                lambda: self._engine.spawn_children(
                    self._lease, executions, group=group, policy=policy
                )
            )
            if policy is not None:
                self._running.joined = True
            return found

    async def _in_turn(
        self, batch: ChildBatch[R], concurrency: int, *, until_lost: bool
    ) -> ChildWindow:
        """The children once all have ended, or `until_lost` one was; a few at a time.

        Whenever some have ended the attempt goes on, starts as many others, and is put down again.
        """
        _check_concurrency(concurrency)
        groups = batch.groups()
        while True:
            async with self._turn:
                window = await self._fenced(lambda: self._engine.read_window(self._lease, groups))
                ended = len(window.succeeded) + len(window.lost)
                if ended == len(groups) or (until_lost and window.lost):
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
                    self._running.joined = True
            still_open = [group for group, child in groups.items() if child in window.running]
            async with self._turn:
                await self._park(*still_open, *new)

    async def _fenced(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The answer of a call that only the holder of the lease may make."""
        self._check()
        try:
            return await repeated(attempt)
        except (NotFound, ExecutionNotActive, StaleLease, LeaseExpired) as refusal:
            self._lose(refusal)

    async def _decided(self, batch: ChildBatch[R], policy: JoinPolicy) -> Join:
        """The join once it is decided; until then the attempt is suspended to wait."""
        join = await self._spawned(batch, policy)
        while join is None or join.group_state is GroupState.PENDING:
            async with self._turn:
                await self._park(batch.group)
            join = await repeated(lambda: self._engine.read_join(batch.group))
        return join

    async def _ends(self, children: Iterable[ExecutionId]) -> list[ExecutionOutcome]:
        """How these ended, in this order; one that was replayed and runs is waited for."""
        wanted = list(children)
        found = await repeated(lambda: self._engine.read_outcomes(wanted))
        if len(found) < len(wanted):
            async with self._turn:
                await self._rest()
        return [found[each] for each in wanted]

    async def _failure(self, batch: ChildBatch[R], join: Join) -> ChildFailed:
        """The first, in the order of the calls, of those that made the wait impossible."""
        return await self._failed(next(each for each in batch.calls if each in join.lost))

    async def _failed(self, first: ExecutionId) -> ChildFailed:
        end = (await repeated(lambda: self._engine.read_outcomes([first]))).get(first)
        if end is None or end.public_state is PublicState.COMPLETED:
            return ChildFailed(first, "failed", "it was replayed since")
        return child_failed(end)

    async def _park(self, *groups: GroupId) -> None:
        """Let go of the attempt until one of the waits is decided; returns if one is by now."""
        self._check()
        ask = ChildWait(lease=self._lease, groups=groups)
        [answer] = await repeated(lambda: self._engine.wait_children([ask]))
        match answer:
            case NothingToWaitFor():
                return
            case WaitingChildren():
                self._put_down()
            case refusal:
                self._lose(refusal)

    async def _rest(self) -> NoReturn:
        """Let go of the attempt for a moment."""
        self._check()
        rest = DelayRequest(lease=self._lease, delay=_LOOK_AGAIN)
        [answer] = await repeated(lambda: self._engine.delay([rest]))
        if isinstance(answer, Delayed):
            self._put_down()
        self._lose(answer)

    def _check(self) -> None:
        if self._running.parked:
            raise Parked
        if self._running.lost:
            raise LeaseLost(f"the lease of {self._lease.execution_id} is gone")

    def _put_down(self) -> NoReturn:
        self._running.parked = self._running.finished = True
        raise Parked

    def _lose(self, refusal: Exception) -> NoReturn:
        self._running.lost = True
        if self._running.on_lost is not None:
            self._running.on_lost.set()
        raise LeaseLost(str(refusal)) from refusal


def _check_concurrency(concurrency: object) -> None:
    if not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1:
        raise invalid_input("concurrency", concurrency, "must be a whole number of at least 1")
