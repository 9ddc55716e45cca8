"""When an attempt gives up its lease to wait: once nothing of its handler runs any more.

A wait registers here, and its branch of the handler blocks. The attempt is parked when at least one
wait is open, no step runs, no statement of the attempt is in flight, and that has been so for a
moment. Then all branches end with `AttemptSuspended`; the handler runs again, from its top, when
something that it waits for has happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from flowfabric.engine.journal.delay_with_entries import Sleeper
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.lifecycle.delay import Delayed, DelayRequest
from flowfabric.engine.lifecycle.wait_children import ChildWait, NothingToWaitFor, WaitingChildren
from flowfabric.engine.suspensions.suspension import (
    NothingToSuspendFor,
    SatisfiedAlready,
    Suspended,
    SuspendRequest,
)
from flowfabric.errors import (
    EngineError,
    LeaseLost,
    PendingWaitpointExpired,
    TransactionOpen,
    WaitpointNotPending,
)
from flowfabric.ids import GroupId
from flowfabric.instants import instant
from flowfabric.worker.attempt_suspended import AttemptSuspended
from flowfabric.worker.durable.after_turns import after_turns
from flowfabric.worker.durable.awaited import Awaited, detail_of, earliest, suspend_request
from flowfabric.worker.durable.lease_lost import REFUSED, lease_lost

if TYPE_CHECKING:
    from flowfabric.worker.durable.journal import AttemptJournal
    from flowfabric.worker.durable.services import DurableServices
    from flowfabric.worker.running_attempt import RunningAttempt
    from flowfabric.worker.transaction import HandlerTransaction

_QUIET_TURNS: Final = 10
_QUIET_FOR: Final = 0.005
_LOOK_EVERY: Final = 1.0
_CLEAN_UP_WITHIN: Final = 5.0
_UNWIND_WITHIN: Final = 0.5
_STOP_WITHIN: Final = 1.0

_LOOK_AGAIN: Final = (
    NothingToWaitFor,
    NothingToSuspendFor,
    SatisfiedAlready,
    PendingWaitpointExpired,
    WaitpointNotPending,
)
"""The answers to a park after which the waits find what has happened."""


class _Wait:
    """An open wait: its branch looks again whenever `changed` is set."""

    def __init__(self, awaited: Awaited, opening: Callable[[], EntryWrite | None]) -> None:
        self.awaited, self.opening = awaited, opening
        self.task = asyncio.current_task()
        self.changed = asyncio.Event()
        self.error: BaseException | None = None


# A step enters such a block: a class is twice as fast as a generator.


class _Inside:
    """The task that runs the block is counted among those inside.

    With `busy` the attempt is not parked meanwhile.
    """

    __slots__ = ("_busy", "_parking", "_task")

    def __init__(self, parking: Parking, *, busy: bool) -> None:
        self._parking, self._busy = parking, busy

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        tasks = self._parking.inside
        tasks[task] = tasks.get(task, 0) + 1
        if self._busy:
            self._parking.begin()

    def __exit__(self, *_: object) -> None:
        tasks = self._parking.inside
        left = tasks.pop(self._task) - 1
        if left:
            tasks[self._task] = left
        if self._busy:
            self._parking.end()


class Parking:
    """The open waits of one attempt, and what keeps the attempt from being parked."""

    def __init__(
        self,
        attempt: RunningAttempt,
        journal: AttemptJournal,
        services: DurableServices,
        transaction: HandlerTransaction,
    ) -> None:
        self._attempt, self._journal = attempt, journal
        self._services, self._transaction = services, transaction
        self._waits: dict[_Wait, None] = {}
        self._busy = 0
        self._changes = 0
        self._has_news = False
        self._refusals, self._refused_at = 0, 0.0
        self.inside: dict[asyncio.Task[Any], int] = {}
        """The tasks in blocks of this attempt, and in how many each is."""
        self._idle = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._unwinding: asyncio.TimerHandle | None = None
        self._closed = False
        self.in_thread = False
        """Does the handler wait in a thread, and not in the task of its attempt?"""

    # What keeps the attempt up.

    def busy(self) -> contextlib.AbstractContextManager[None]:
        """The attempt is not parked while this block runs: a step, or a statement."""
        return _Inside(self, busy=True)

    def _entered(self) -> contextlib.AbstractContextManager[None]:
        """The task that runs this block is stopped if the handler ends before it."""
        return _Inside(self, busy=False)

    def begin(self) -> None:
        """As `busy`, for a block that runs in the thread of a handler; `end` follows."""
        self._busy += 1
        self._changes += 1

    def end(self) -> None:
        """A block that `begin` began has ended."""
        self._busy -= 1
        self._changes += 1
        if not self._busy:
            self._idle.set()

    # Waiting.

    async def until_changed(
        self, awaited: Awaited, opening: Callable[[], EntryWrite | None] = lambda: None
    ) -> None:
        """Wait until what is awaited may have happened; the caller looks again.

        `opening` gives the entry to write before the attempt is parked, if it is not written yet.
        Raises `AttemptSuspended` when the attempt is parked, `LeaseLost` and `TransactionOpen`.
        """
        self.check()
        wait = _Wait(awaited, opening)
        self._waits[wait] = None
        self._changes += 1
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name="flowfabric parking")
        try:
            with self._entered():
                await wait.changed.wait()
        finally:
            del self._waits[wait]
            self._changes += 1
        if wait.error is not None:
            raise wait.error
        self.check()

    def check(self) -> None:
        """Raise `AttemptSuspended` or `LeaseLost` if the handler must not go on."""
        if self._attempt.suspended:
            self._ends_quietly()
            raise AttemptSuspended
        self._attempt.check_lease()
        if self._closed or self._attempt.finished:
            raise LeaseLost(f"the attempt of {self._attempt.execution_id} is over")

    def _ends_quietly(self) -> None:
        """The event loop does not report that nobody looked how a branch has ended."""
        task = asyncio.current_task()
        if task is not None and task is not self._attempt.slot:
            task.add_done_callback(_retrieved)

    def wake(self) -> None:
        """Every wait looks again."""
        for wait in self._waits:
            wait.changed.set()

    async def close(self) -> None:
        """The handler has ended: stop what it has left running."""
        self._closed = True
        if self._unwinding is not None:
            self._unwinding.cancel()
        own = asyncio.current_task()
        left = {task for task in self.inside if task is not own and not task.done()}
        if self._watching is not None and not self._watching.done():
            left.add(self._watching)
        for task in left:
            task.cancel()
            task.add_done_callback(_retrieved)
        if left:
            await asyncio.wait(left, timeout=_STOP_WITHIN)

    # Parking.

    async def _watch(self) -> None:
        """While waits are open: park when nothing runs; while something does, look now and then."""
        try:
            while self._waits and not self._attempt.suspended:
                if self._busy:
                    await self._look_while_busy()
                    continue
                with self._lent_slot():
                    if await self._is_quiet():
                        await self._park()
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            self._fail(error)
        finally:
            self._services.looks.discard(self._attempt)

    async def _look_while_busy(self) -> None:
        """Return when nothing runs any more, or something may have happened that is waited for."""
        self._idle.clear()
        asleep = [wait.awaited for wait in self._waits if not wait.changed.is_set()]
        if not all(each.is_timer for each in asleep):
            self._services.looks.add(self._attempt, self._told)
        due = earliest(asleep)
        left = None if due is None else max(0.001, (due - self._journal.now_ms) / 1000)
        try:
            async with asyncio.timeout(left):
                await self._idle.wait()
        except TimeoutError:
            self._wake_due()
        if self._has_news:
            await self._look()

    def _told(self) -> None:
        """Something has happened since the last look of the worker."""
        self._has_news = True
        self._idle.set()

    @contextlib.contextmanager
    def _lent_slot(self) -> Generator[None]:
        """Another handler may begin meanwhile, if this one waits for time alone.

        Such a park is not refused, so that no more handlers run at a time than the worker allows.
        """
        lend = self._attempt.lend_slot
        lends = self._ends_by_itself and all(wait.awaited.is_timer for wait in self._waits)
        if lend is None or not lends:
            yield
            return
        lend(self._attempt, True)
        try:
            yield
        finally:
            if not self._attempt.suspended:
                lend(self._attempt, False)

    @property
    def _ends_by_itself(self) -> bool:
        """Does the handler itself wait, and not a branch of it alone?"""
        return self.in_thread or any(wait.task is self._attempt.slot for wait in self._waits)

    async def _is_quiet(self) -> bool:
        changes = self._changes
        await after_turns(_QUIET_TURNS, pause=_QUIET_FOR)
        return not self._busy and changes == self._changes and bool(self._waits)

    def _wake_due(self) -> bool:
        """Wake the waits that are due; is one of all waits awake?"""
        now = self._journal.now_ms
        for wait in self._waits:
            if wait.awaited.due_ms is not None and wait.awaited.due_ms <= now:
                wait.changed.set()
        return any(wait.changed.is_set() for wait in self._waits)

    async def _look(self) -> None:
        """Read again what may have happened while steps run, and let every wait look."""
        self._has_news = False
        if any(wait.awaited.signals for wait in self._waits):
            await self._services.refresh_inbox(self._attempt, self._journal.now_ms)
        for wait in self._waits:
            if not wait.awaited.is_timer:
                wait.changed.set()

    async def _park(self) -> None:
        if self._wake_due():
            await asyncio.sleep(0)  # a branch goes on first
            return
        if self._transaction.begun:
            self._fail(TransactionOpen())
            return
        waits = [wait.awaited for wait in self._waits]
        openings = [write for wait in self._waits if (write := wait.opening()) is not None]
        self._journal.parks()
        with self.busy(), self._attempt.giving_up():
            if await self._gave_up(waits, openings):
                self.gave_up()
                return
        await self._look()
        # The waits look for what has happened. Should they not find it, they are not asked for ever
        # at full speed.
        now = time.monotonic()
        self._refusals = self._refusals + 1 if now - self._refused_at < 2 * _LOOK_EVERY else 0
        self._refused_at = now
        await asyncio.sleep(min(_LOOK_EVERY, _QUIET_FOR * (2 ** min(self._refusals, 10) - 1)))

    async def _gave_up(self, waits: Sequence[Awaited], openings: Sequence[EntryWrite]) -> bool:
        """Give up the lease; False if something was decided meanwhile and it is still held.

        The entries are recorded before, or with it.
        """
        due = earliest(waits)
        if due is not None and all(each.is_timer for each in waits):
            return await self._delayed(instant(due), detail_of(waits), openings)
        await self._journal.record(*openings)
        only_joins = not any(each.signals or each.waitpoints for each in waits)
        joins = [join for each in waits for join in each.joins]
        if due is None and joins and only_joins:
            return await self._waits_for_children(joins)
        read = self._services.signals_read(self._attempt)
        return await self.suspended_for(suspend_request(self._attempt.lease, waits, read))

    async def _delayed(self, until: datetime, detail: str, openings: Sequence[EntryWrite]) -> bool:
        request = DelayRequest(lease=self._attempt.lease, delay_until=until, detail=detail)
        sleeper = Sleeper(request=request, entries=self._journal.unwritten(*openings))
        answer = await self._services.delay(self._attempt, sleeper)
        if not isinstance(answer, Delayed):
            self._refused(answer)
        self._journal.committed(sleeper.entries)
        self._services.promote_at(until, self._journal.now)
        return True

    async def _waits_for_children(self, joins: Sequence[GroupId]) -> bool:
        request = ChildWait(lease=self._attempt.lease, groups=tuple(joins))
        answer = await self._services.wait_children(self._attempt, request)
        return isinstance(answer, WaitingChildren) or self._refused(answer)

    async def suspended_for(self, request: SuspendRequest) -> bool:
        """Is the attempt suspended; False if there is nothing to wait for. Raises `LeaseLost`."""
        answer = await self._services.suspend(self._attempt, request)
        return isinstance(answer, Suspended) or self._refused(answer)

    def _refused(self, answer: object) -> bool:
        """False for an answer after which the waits look again; raises any other."""
        if isinstance(answer, REFUSED):
            lease_lost(self._attempt, answer)
        if not isinstance(answer, _LOOK_AGAIN):
            raise answer if isinstance(answer, EngineError) else AssertionError(answer)
        return False

    def gave_up(self) -> None:
        """The lease is given up: every branch ends, and then the handler."""
        self._attempt.suspended = self._attempt.finished = True
        ends = self._ends_by_itself
        self.wake()
        # A handler that waits here ends by itself, once it has cleaned up. Another one may wait for
        # something of its own.
        within = _CLEAN_UP_WITHIN if ends else _UNWIND_WITHIN
        self._unwinding = asyncio.get_running_loop().call_later(within, self._unwind)

    def _unwind(self) -> None:
        """The handler has not ended: its task is cancelled."""
        slot = self._attempt.slot
        if slot is not None:
            self._attempt.unwound = True
            slot.cancel()

    def _fail(self, error: BaseException) -> None:
        for wait in self._waits:
            wait.error = error
            wait.changed.set()


def _retrieved(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
