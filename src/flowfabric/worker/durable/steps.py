"""Steps: a function whose result is recorded, and which then never runs again."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import zlib
from collections.abc import Callable, Coroutine, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar

import msgspec

from flowfabric.errors import EntryDecodeError, Fail, LeaseLost, NestedDurableCall
from flowfabric.instants import epoch_ms
from flowfabric.states import JournalKind, JournalState
from flowfabric.tracing import step_span
from flowfabric.worker.durable.awaited import Awaited
from flowfabric.worker.durable.settings import HOT
from flowfabric.worker.durable.step import StepSettings, is_async, next_pause
from flowfabric.worker.durable.step_errors import (
    StoredError,
    not_recorded,
    raised,
    recorded,
    store_error,
)
from flowfabric.worker.durable.values import StoredValue, Unstorable

if TYPE_CHECKING:
    from flowfabric.engine.journal.entry import EntryWrite
    from flowfabric.worker.durable.durable import Durable
    from flowfabric.worker.durable.journal import KnownEntry
    from flowfabric.worker.durable.keys import EntryKey

T = TypeVar("T")


class Wait(Protocol):
    """Runs a coroutine on the event loop and waits for its result, from another thread."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


_in_order: Final = msgspec.json.Encoder(order="deterministic")
TIMEOUT: Final = "timeout"
RESULT_DECODE: Final = "result_decode"

current_step: contextvars.ContextVar[StepRun | None] = contextvars.ContextVar(
    "flowfabric_step", default=None
)
"""The step whose function runs here."""


after_recording: contextvars.ContextVar[Callable[[str], bool] | None] = contextvars.ContextVar(
    "flowfabric_after_recording", default=None
)
"""For tests: is the worker to die now that the step of this name is recorded?"""


def refuse_nested(name: str) -> None:
    """Raise `NestedDurableCall` inside the function of a step, also in its tasks and threads."""
    inside = current_step.get()
    if inside is not None:
        raise NestedDurableCall(name, inside.step.name)


def fingerprint_of(durable: Durable, args: Sequence[Any]) -> int | None:
    """crc32 of the encoded arguments; None if they do not encode.

    Sets are put in order: theirs differs from process to process.
    """
    if not args:
        return 0
    for encode in (_in_order.encode, durable.settings.codec.encode):
        with contextlib.suppress(Exception):
            return zlib.crc32(encode(list(args)))
    return None


class StepRun:
    """One call of a step, made at once when its key was allotted."""

    __slots__ = (
        "_branch",
        "_durable",
        "_fingerprint",
        "_journal",
        "_started_ms",
        "_tries",
        "args",
        "key",
        "step",
    )

    def __init__(
        self, durable: Durable, key: EntryKey, step: StepSettings, args: Sequence[Any]
    ) -> None:
        self._durable, self.key, self.step, self.args = durable, key, step, args
        self._journal = durable.journal
        self._branch = self._journal.branch
        self._fingerprint = fingerprint_of(durable, args)
        self._started_ms = self._journal.now_ms
        self._tries = 0

    async def result(self, *, lends: bool = False) -> Any:
        """The value that the handler gets: recorded, or of the function that runs now.

        Raises what the step raised. With `lends` the thread of the handler waits meanwhile.
        """
        entry = await self.recorded()
        if entry is not None:
            return self.finished(entry)
        parking = self._durable.parking
        while True:
            if self._journal.has_unwritten:
                await self._durable.flush()
            else:
                parking.check()
            self._tries += 1
            with parking.busy():
                try:
                    value = await self._body(lends=lends)
                except Exception as error:
                    failure = error
                else:
                    return await self._completed(value)
            await self.failed(failure)

    def result_here(self, wait: Wait) -> Any:
        """The same for a handler in a thread: its plain function runs in this thread.

        `wait` runs a coroutine on the event loop. A function that is async, or has a timeout, runs
        as in an async handler.
        """
        if self.step.timeout is not None or is_async(self.step.function):
            return wait(self.result(lends=True))
        entry = wait(self.recorded())
        if entry is not None:
            return self.finished(entry)
        while True:
            wait(self._begin_here())
            self._tries += 1
            try:
                with self.entered():
                    value = self.step.function(*self.args)
            except Exception as error:
                failure = error
            else:
                return wait(self.complete(value))
            finally:
                wait(self._end_here())
            wait(self.failed(failure))

    async def _begin_here(self) -> None:
        await self._durable.flush()
        self._durable.parking.begin()

    async def _end_here(self) -> None:
        self._durable.parking.end()

    @property
    def effect_key(self) -> str:
        """The same in every try, attempt and worker: for the outside system of this step."""
        return str(self._durable.effect_key(self.key))

    async def recorded(self) -> KnownEntry | None:
        """The finished entry of this call; waits out the pause of one that is to be tried again."""
        journal, key = self._journal, self.key
        entry = journal.find(key, JournalKind.STEP)
        if entry is None:
            if not journal.is_frontier:
                await self._durable.frontier(key)
            return None
        if not key.item and journal.is_repeated(key.name):
            journal.check_fingerprint(entry, self._fingerprint)
        if entry.state is not JournalState.OPEN:
            return entry
        self._tries = entry.tries
        self._started_ms = epoch_ms(entry.started_at)
        if entry.due_at is not None:
            await self._until(epoch_ms(entry.due_at))
        return None

    def finished(self, entry: KnownEntry) -> Any:
        """The value of a finished entry; raises its error."""
        if entry.state is JournalState.FAILED:
            raise self._error(self._durable.decode_error(entry), is_recorded=True)
        return self._durable.decode(
            self.key, StoredValue(entry.value, entry.encoding), self.step.wanted
        )

    def completed(self, value: object) -> tuple[EntryWrite, Any]:
        """The entry to write, and the value as it is read back; raises `Fail` if it has none."""
        try:
            stored = self._durable.values.encode(value)
            read = self._durable.values.decode(self.key.name, stored, self.step.wanted)
        except (Unstorable, EntryDecodeError) as error:
            category = error.category if isinstance(error, Unstorable) else RESULT_DECODE
            raise Fail(str(error), category=category, retryable=False) from error
        return self.entry(JournalState.DONE, stored), read

    async def complete(self, value: object) -> Any:
        """Record the value; returns it as it is read back."""
        with self._durable.parking.busy():
            return await self._completed(value)

    async def _completed(self, value: object) -> Any:
        """The same, in a block that keeps the attempt from being parked."""
        try:
            write, read = self.completed(value)
        except Fail as error:
            await self._ended(store_error(error), cause=error.__cause__)
        if self.step.lazy:
            self._journal.later(write)
        else:
            self._durable.parking.check()
            await self._journal.record(write)
            if (dies := after_recording.get()) is not None and dies(self.key.name):
                self._durable.attempt.lost = True
                raise LeaseLost("a fault point has ended this attempt")
        return read

    def entry(
        self, state: JournalState, value: StoredValue | StoredError | None = None, **more: Any
    ) -> EntryWrite:
        """The entry of this call in this state."""
        return self._journal.entry(
            self.key,
            JournalKind.STEP,
            state,
            value=value,
            started_ms=self._started_ms,
            fingerprint=self._fingerprint,
            tries=max(1, self._tries),
            **more,
        )

    async def _body(self, *, lends: bool) -> Any:
        if self.step.timeout is not None:
            return await self._timed(self.step.timeout, lends=lends)
        token = current_step.set(self)
        try:
            with step_span(self.key.name):
                return await self._called(lends=lends)
        finally:
            current_step.reset(token)

    async def _timed(self, timeout: float, *, lends: bool) -> Any:
        limit = asyncio.timeout(timeout)
        try:
            with self.entered():
                async with limit:
                    return await self._called(lends=lends)
        except TimeoutError as error:
            if limit.expired():
                raise _TimedOut(timeout) from error
            raise

    @contextlib.contextmanager
    def entered(self) -> Generator[None]:
        """Inside this block durable calls are refused, and `ctx.effect_key` is that of the step."""
        token = current_step.set(self)
        try:
            with step_span(self.key.name):
                yield
        finally:
            current_step.reset(token)

    async def _called(self, *, lends: bool) -> Any:
        function = self.step.function
        if is_async(function):
            return await function(*self.args)
        call = partial(contextvars.copy_context().run, function, *self.args)
        kind, threads = self._durable.attempt.claimed.execution_kind, self._durable.services.threads
        result = await threads.run(kind, call, lent=lends)
        return await result if inspect.isawaitable(result) else result

    async def failed(self, error: Exception) -> None:
        """Return if the function is to be tried again, after its pause; else raise."""
        if isinstance(error, LeaseLost) and self._durable.attempt.lost:
            raise error
        stored = store_error(error, TIMEOUT if isinstance(error, _TimedOut) else None)
        retry = self.step.retry
        if retry is None and not (isinstance(error, Fail) and error.may_retry is False):
            # Not recorded yet: if the error ends the attempt, the next one runs the step again.
            write = self.entry(JournalState.FAILED, stored)
            self._journal.failed(self.key, write, self._branch)
            raise self._error(stored) from error
        pause = None if retry is None else next_pause(retry, self._tries, error, stored.category)
        if pause is None:
            await self._ended(stored, cause=error)
        if pause <= HOT:
            with self._durable.parking.busy():
                await asyncio.sleep(pause)
            return
        await self._until(self._journal.now_ms + round(pause * 1000))

    async def _until(self, due_ms: int) -> None:
        """Wait for the next try, without the lease if the attempt can be parked."""
        tries = "" if self.step.retry is None else f" of {self.step.retry.max_retries + 1}"
        awaited = Awaited(
            detail=f"step {self.key.name!r}: try {self._tries + 1}{tries}", due_ms=due_ms
        )
        while self._journal.now_ms < due_ms:
            await self._durable.parking.until_changed(awaited, lambda: self._opening(due_ms))

    def _opening(self, due_ms: int) -> EntryWrite | None:
        return self._journal.opening(
            self.key,
            JournalKind.STEP,
            due_ms=due_ms,
            tries=self._tries,
            started_ms=self._started_ms,
            fingerprint=self._fingerprint,
        )

    async def _ended(self, stored: StoredError, cause: BaseException | None = None) -> NoReturn:
        """Record the failure for good, and raise it."""
        await self._durable.record(self.entry(JournalState.FAILED, stored))
        raise self._error(stored, is_recorded=True) from cause

    def _error(self, stored: StoredError, *, is_recorded: bool = False) -> BaseException:
        raises = (*self.step.raises, *self._durable.settings.raises)
        error = raised(self.key.name, stored, raises)
        return recorded(error) if is_recorded else not_recorded(error, self.key)


class _TimedOut(Exception):
    def __init__(self, seconds: float) -> None:
        super().__init__(f"it took longer than {seconds:g} s")
