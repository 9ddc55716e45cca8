"""What the durable calls of all attempts of a worker share: their statements, gathered.

Entries, reads and parks of many attempts travel together: one statement is in flight, and what
comes meanwhile goes into the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from flowfabric.counters import JOURNAL_ENTRIES, JOURNAL_FLUSH_SECONDS, JOURNAL_FLUSH_SIZE
from flowfabric.db.batcher import Batcher
from flowfabric.db.faults import is_trouble
from flowfabric.engine.journal.delay_with_entries import Sleeper
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.lifecycle.delay import Delayed
from flowfabric.engine.lifecycle.wait_children import ChildWait
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.engine.suspensions.suspension import SuspendRequest
from flowfabric.errors import EngineError, FlowFabricError
from flowfabric.ids import ExecutionId
from flowfabric.worker.durable.lease_lost import REFUSED, lease_lost
from flowfabric.worker.durable.looks import Looks
from flowfabric.worker.frame_writer import FrameWriter
from flowfabric.worker.maintenance import promote
from flowfabric.worker.repeat_while_leased import repeat_while_leased
from flowfabric.worker.threads import HandlerThreads

if TYPE_CHECKING:
    from flowfabric.engine.journal.read_journal import Journal
    from flowfabric.engine.suspensions.read_inbox import Inbox
    from flowfabric.remote.engine_like import EngineLike
    from flowfabric.worker.handler import Handler
    from flowfabric.worker.running_attempt import RunningAttempt

log: Final = logging.getLogger("flowfabric.worker")
MOST_ENTRIES: Final = 500
_KIND_AND_STATE: Final = attrgetter("kind", "state")
_MOST_PARKS: Final = 200
_MOST_JOURNALS: Final = 100
_PROMOTE_WITHIN: Final = 60.0
_PROMOTE_EVERY: Final = 0.02
"""Sleepers that are due within so many seconds of one another are woken together."""

T = TypeVar("T")


class DurableServices:
    """Writes and reads journals, and parks attempts, for one worker."""

    def __init__(self, engine: EngineLike, threads: HandlerThreads) -> None:
        self.engine, self.threads = engine, threads
        self.frames = FrameWriter(engine)
        self._entries: Batcher[Sequence[EntryWrite], None] = Batcher(
            self._record, max_weight=MOST_ENTRIES, weight=len, in_flight=1, halves=True
        )
        self._journals: Batcher[ExecutionId, Journal] = Batcher(
            self._read_journals, max_weight=_MOST_JOURNALS, in_flight=1
        )
        self._inboxes: Batcher[ExecutionId, Inbox] = Batcher(
            self._read_inboxes, max_weight=200, in_flight=1
        )
        self._delays: Batcher[Sleeper, Any] = Batcher(
            self._delay, max_weight=MOST_ENTRIES, weight=_weight, in_flight=1
        )
        self._child_waits: Batcher[ChildWait, Any] = Batcher(
            self._plain(engine.wait_children), max_weight=_MOST_PARKS, in_flight=1
        )
        self._suspends: Batcher[SuspendRequest, Any] = Batcher(
            self._plain(engine.suspend), max_weight=_MOST_PARKS, in_flight=1
        )
        self.looks = Looks(engine)
        self._reading: set[asyncio.Task[None]] = set()
        self._inbox_of: dict[RunningAttempt, tuple[Inbox, int]] = {}
        self._due: list[float] = []
        self._promoting: asyncio.Task[None] | None = None
        self._due_changed = asyncio.Event()

    # The journal.

    async def record(self, attempt: RunningAttempt, writes: Sequence[EntryWrite]) -> None:
        """The entries are committed; raises `LeaseLost`, and nothing is, without the lease.

        Frames that the handler emitted before are committed before: a handler that runs again
        emits none that comes before a recorded entry.
        """
        if writes and attempt.frames is not None:
            await self.frames.flush(attempt)
        try:
            for first in range(0, len(writes), MOST_ENTRIES):
                part = writes[first : first + MOST_ENTRIES]
                await repeat_while_leased(attempt, self._entries.request, part)
        except REFUSED as refusal:
            lease_lost(attempt, refusal)

    def reading_ahead(
        self, handlers: Mapping[str, Handler]
    ) -> Callable[[Sequence[RunningAttempt]], None]:
        """A function that reads ahead for those of its attempts that may have a journal."""

        def read_ahead(attempts: Sequence[RunningAttempt]) -> None:
            held_before = [each for each in attempts if each.lease.lease_epoch > 1]
            if held_before:
                kinds = {kind for kind, each in handlers.items() if each.durable.is_allowed}
                self.read_ahead([a for a in held_before if a.claimed.execution_kind in kinds])

        return read_ahead

    def read_ahead(self, attempts: Sequence[RunningAttempt]) -> None:
        """Begin to read the journals of attempts that have no slot yet, many with one statement.

        The lease is held, so that nobody else writes to them meanwhile.
        """
        loop = asyncio.get_running_loop()
        for first in range(0, len(attempts), _MOST_JOURNALS):
            some = attempts[first : first + _MOST_JOURNALS]
            for each in some:
                each.stored = loop.create_future()
            reading = loop.create_task(self._read_ahead(some), name="flowfabric journals")
            self._reading.add(reading)
            reading.add_done_callback(self._reading.discard)

    async def _read_ahead(self, attempts: Sequence[RunningAttempt]) -> None:
        waiting = [each.stored for each in attempts]
        found: dict[ExecutionId, Journal] = {}
        try:
            found = await self.engine.read_journal([each.execution_id for each in attempts])
        except FlowFabricError as error:
            log.debug("journals could not be read ahead: %s", error)
        finally:
            for attempt, future in zip(attempts, waiting, strict=True):
                if future is not None and not future.done():
                    future.set_result(found.get(attempt.execution_id))

    async def read_journal(self, attempt: RunningAttempt) -> Journal:
        """What is recorded of the execution, and the signals that it has not consumed."""
        if attempt.stored is not None:
            ahead, attempt.stored = await attempt.stored, None
            if ahead is not None:
                return ahead
        return await repeat_while_leased(attempt, self._journals.request, attempt.execution_id)

    async def _record(
        self, requests: Sequence[Sequence[EntryWrite]]
    ) -> Sequence[EngineError | None]:
        writes = [each for many in requests for each in many]
        began = time.perf_counter()
        refused = await self.engine.record_entries(writes)
        observe_flush(began, writes)
        if refused:
            writes = [each for each in writes if each.lease not in refused]
        count_entries(writes)
        if not refused:
            return [None] * len(requests)
        return [refused.get(many[0].lease) for many in requests]

    async def _read_journals(self, executions: Sequence[ExecutionId]) -> Sequence[Journal]:
        found = await self.engine.read_journal(list(dict.fromkeys(executions)))
        return [found[each] for each in executions]

    # Signals.

    async def refresh_inbox(self, attempt: RunningAttempt, now_ms: int) -> Inbox:
        """Read the signals again that the execution has not consumed; `now_ms` is the time."""
        inbox = await repeat_while_leased(attempt, self._inboxes.request, attempt.execution_id)
        self.keep_inbox(attempt, inbox, now_ms)
        return inbox

    async def send_signal(self, attempt: RunningAttempt, signal: NewSignal) -> None:
        """The signal is accepted, or was before; raises why the other execution refuses it."""
        await repeat_while_leased(attempt, self.engine.send_signal, signal)

    def keep_inbox(self, attempt: RunningAttempt, inbox: Inbox, read_ms: int) -> None:
        """The signals as they were read at this time, or later."""
        self._inbox_of[attempt] = (inbox, read_ms)

    def inbox(self, attempt: RunningAttempt, *, since_ms: int = 0) -> Inbox | None:
        """The signals that were read last; None if none were read, or not since then."""
        inbox, read_ms = self._inbox_of.get(attempt, (None, 0))
        return inbox if read_ms >= since_ms else None

    def signals_read(self, attempt: RunningAttempt) -> int | None:
        """The number of the last signal that the worker knows of."""
        inbox = self.inbox(attempt)
        return None if inbox is None else inbox.signal_seq

    def forget(self, attempt: RunningAttempt) -> None:
        """The attempt is over for this worker."""
        self._inbox_of.pop(attempt, None)

    async def _read_inboxes(self, executions: Sequence[ExecutionId]) -> Sequence[Inbox]:
        found = await self.engine.read_inbox(list(dict.fromkeys(executions)))
        return [found[each] for each in executions]

    # Parks. Each answers with what the engine answers, also if that is a refusal.

    async def delay(self, attempt: RunningAttempt, sleeper: Sleeper) -> Any:
        """Also records the entries of the handler; neither happens without the lease."""
        await self.frames.flush(attempt)
        return await repeat_while_leased(attempt, _answer, self._delays, sleeper)

    async def _delay(self, sleepers: Sequence[Sleeper]) -> Sequence[Any]:
        """With one statement; over HTTP the entries are recorded first."""
        engine, requests = self.engine, [each.request for each in sleepers]
        writes = [entry for each in sleepers for entry in each.entries]
        began = time.perf_counter()
        if engine.is_remote is False:
            answers = await engine.delay_with_entries(sleepers)
        else:
            if writes:
                await engine.record_entries(writes)
            answers = await engine.delay(requests)
        delayed = {
            request.lease
            for request, answer in zip(requests, answers, strict=True)
            if isinstance(answer, Delayed)
        }
        if writes:
            observe_flush(began, writes)
            count_entries([each for each in writes if each.lease in delayed])
        return answers

    async def wait_children(self, attempt: RunningAttempt, request: ChildWait) -> Any:
        await self.frames.flush(attempt)
        return await repeat_while_leased(attempt, _answer, self._child_waits, request)

    async def suspend(self, attempt: RunningAttempt, request: SuspendRequest) -> Any:
        await self.frames.flush(attempt)
        return await repeat_while_leased(attempt, _answer, self._suspends, request)

    @staticmethod
    def _plain(
        operation: Callable[[Sequence[T]], Awaitable[Sequence[Any]]],
    ) -> Callable[[Sequence[T]], Awaitable[Sequence[Any]]]:
        async def send(requests: Sequence[T]) -> Sequence[Any]:
            return await operation(requests)

        return send

    # Wake-ups of what this worker has delayed.

    def promote_at(self, until: datetime, now: datetime) -> None:
        """Promote due executions at this instant, if it is soon: a sweep would be later."""
        seconds = (until - now).total_seconds()
        if seconds > _PROMOTE_WITHIN:
            return
        heapq.heappush(self._due, asyncio.get_running_loop().time() + max(0.0, seconds))
        self._due_changed.set()
        if self._promoting is None or self._promoting.done():
            self._promoting = asyncio.create_task(self._promote(), name="flowfabric sleepers")

    async def _promote(self) -> None:
        loop = asyncio.get_running_loop()
        until = 0.0
        while self._due:
            pause = self._due[0] - loop.time()
            if pause > 0:
                self._due_changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._due_changed.wait()
                continue
            while self._due and self._due[0] <= loop.time() + _PROMOTE_EVERY:
                until = heapq.heappop(self._due)
            await asyncio.sleep(until - loop.time())
            try:
                await promote(self.engine)
            except FlowFabricError as error:
                log.debug("sleepers could not be woken, left to the sweep: %s", error)

    async def close(self) -> None:
        """Stop writing frames, reading ahead and waking sleepers; the sweeps go on."""
        await self.frames.close()
        left = set(self._reading)
        if self._promoting is not None:
            left.add(self._promoting)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)


def observe_flush(began: float, writes: Sequence[EntryWrite]) -> None:
    """Count a flush of these entries, which has taken the time since `began`."""
    JOURNAL_FLUSH_SECONDS.observe(time.perf_counter() - began)
    JOURNAL_FLUSH_SIZE.observe(len(writes))


def count_entries(writes: Iterable[EntryWrite]) -> None:
    """Count entries that are committed."""
    for (kind, state), count in Counter(map(_KIND_AND_STATE, writes)).items():
        JOURNAL_ENTRIES.add(kind.value, state.value, count=count)


def _weight(sleeper: Sleeper) -> int:
    return max(1, len(sleeper.entries))


async def _answer(batcher: Batcher[T, Any], request: T) -> Any:
    """The answer of the engine, also where it is a refusal of this request."""
    try:
        return await batcher.request(request)
    except EngineError as refusal:
        if is_trouble(refusal):
            raise
        return refusal
