"""Sleeps, and waits for signals by name."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from flowfabric.engine.suspensions.read_inbox import InboxSignal
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.errors import (
    EntryDecodeError,
    NotFound,
    SignalPayloadInvalid,
    SignalTimeout,
    TargetNotSignalable,
    ValidationError,
    invalid_input,
)
from flowfabric.ids import ExecutionId
from flowfabric.instants import check_instant, epoch_ms
from flowfabric.policy import milliseconds
from flowfabric.states import JournalKind, JournalState
from flowfabric.worker.durable.awaited import Awaited
from flowfabric.worker.durable.settings import HOT
from flowfabric.worker.durable.step import StepSettings
from flowfabric.worker.durable.step_errors import StoredError
from flowfabric.worker.durable.steps import StepRun
from flowfabric.worker.durable.values import StoredValue, Unstorable, type_name

if TYPE_CHECKING:
    from flowfabric.engine.journal.entry import EntryWrite
    from flowfabric.worker.durable.durable import Durable
    from flowfabric.worker.durable.journal import KnownEntry
    from flowfabric.worker.durable.keys import EntryKey

NO_DEFAULT: Final = object()
_TIMED_OUT: Final = "SignalTimeout"
_INVALID: Final = "SignalPayloadInvalid"


def check_duration(duration: float | timedelta, *, field: str) -> int:
    """A duration in milliseconds; raises `ValidationError(invalid_input)` if it is negative."""
    length = milliseconds(duration, field=field)
    if length < 0:
        raise invalid_input(field, duration, "must not be negative")
    return length


def due_from(durable: Durable, timeout: float | timedelta | None) -> int | None:
    """The instant, in ms, at which a wait that begins now times out."""
    if timeout is None:
        return None
    return durable.journal.now_ms + check_duration(timeout, field="timeout")


class Sleep:
    """One sleep; its end is fixed when the handler first asks for it."""

    def __init__(self, durable: Durable, key: EntryKey, due_ms: int) -> None:
        self._durable, self._key, self._due_ms = durable, key, due_ms
        self._started_ms = durable.journal.now_ms

    async def over(self) -> None:
        """Return when the sleep is over; a long one does not hold the lease."""
        journal, parking = self._durable.journal, self._durable.parking
        entry = journal.find(self._key, JournalKind.SLEEP)
        if entry is None:
            await self._durable.frontier(self._key)
        elif entry.state is JournalState.DONE:
            return
        elif entry.due_at is not None:
            self._due_ms = epoch_ms(entry.due_at)
        left = (self._due_ms - journal.now_ms) / 1000
        if left <= 0 and entry is not None:
            return  # the open entry and its time say that the sleep is over
        parking.check()
        if left <= HOT:
            with parking.busy():
                await asyncio.sleep(max(0.0, left))
            if entry is None:
                journal.later(self._done())
            return
        awaited = Awaited(detail=f"sleeps in {self._key.name!r}", due_ms=self._due_ms)
        while journal.now_ms < self._due_ms:
            await parking.until_changed(awaited, self._opening)
        if journal.entries.get(self._key) is None:
            journal.later(self._done())  # never parked, because a step ran beside it

    def _done(self) -> EntryWrite:
        return self._durable.journal.entry(
            self._key,
            JournalKind.SLEEP,
            JournalState.DONE,
            started_ms=self._started_ms,
            due_ms=self._due_ms,
        )

    def _opening(self) -> EntryWrite | None:
        return self._durable.journal.opening(
            self._key, JournalKind.SLEEP, due_ms=self._due_ms, started_ms=self._started_ms
        )


def sleep_for(durable: Durable, key: EntryKey, duration: float | timedelta) -> Sleep:
    """A sleep of this length."""
    length = check_duration(duration, field="duration")
    return Sleep(durable, key, durable.journal.now_ms + length)


def sleep_until(durable: Durable, key: EntryKey, moment: datetime) -> Sleep:
    """A sleep until an instant; raises `ValidationError` for one that is over a century ahead."""
    due_ms = epoch_ms(check_instant(moment, field="moment"))
    milliseconds((due_ms - durable.journal.now_ms) / 1000, field="moment")
    return Sleep(durable, key, due_ms)


class SignalWait:
    """One wait for a signal: the first of its name that no other call has consumed."""

    def __init__(
        self, durable: Durable, key: EntryKey, name: str, wanted: Any, due_ms: int | None
    ) -> None:
        self._durable, self._key, self._name = durable, key, name
        self._wanted, self._due_ms = wanted, due_ms
        self._started_ms = durable.journal.now_ms

    async def result(self, default: Any = NO_DEFAULT) -> Any:
        """The payload; raises `SignalTimeout` (or returns the default), `SignalPayloadInvalid`."""
        durable = self._durable
        entry = durable.journal.find(self._key, JournalKind.SIGNAL)
        if entry is None:
            await durable.frontier(self._key)
        else:
            self._started_ms = epoch_ms(entry.started_at)
            if entry.state is not JournalState.OPEN:
                return self._finished(entry, default)
            self._due_ms = None if entry.due_at is None else epoch_ms(entry.due_at)
        durable.parking.check()
        await read_inbox(durable)
        while True:
            signal = take_signal(durable, self._name, self._due_ms)
            if signal is not None:
                return await self._consume(signal)
            if self._due_ms is not None and durable.journal.now_ms >= self._due_ms:
                if not await read_inbox(durable, since_ms=self._due_ms):
                    return await self._timed_out(default)
                continue  # a signal may have come in time while a step ran
            await durable.parking.until_changed(self._awaited(), self._opening)

    def _awaited(self) -> Awaited:
        return Awaited(
            detail=f"waits for signal {self._name!r}", due_ms=self._due_ms, signals=(self._name,)
        )

    def _opening(self) -> EntryWrite | None:
        return self._durable.journal.opening(
            self._key, JournalKind.SIGNAL, due_ms=self._due_ms, started_ms=self._started_ms
        )

    def _entry(self, state: JournalState, **more: Any) -> EntryWrite:
        return self._durable.journal.entry(
            self._key,
            JournalKind.SIGNAL,
            state,
            started_ms=self._started_ms,
            due_ms=self._due_ms,
            **more,
        )

    async def _consume(self, signal: InboxSignal) -> Any:
        stored = StoredValue(signal.payload, signal.encoding)
        try:
            value = self._durable.values.decode(self._name, stored, self._wanted)
        except EntryDecodeError as error:
            fault = StoredError(error_type=_INVALID, category=_INVALID, reason=error.why)
            write = self._entry(JournalState.FAILED, value=fault, signal_seq=signal.signal_seq)
            await self._durable.record(write)
            raise SignalPayloadInvalid(self._name, error.wanted, error.why) from None
        write = self._entry(JournalState.DONE, value=stored, signal_seq=signal.signal_seq)
        await self._durable.record(write)
        return value

    async def _timed_out(self, default: Any) -> Any:
        fault = StoredError(error_type=_TIMED_OUT, category="timeout", reason="timed out")
        await self._durable.record(self._entry(JournalState.FAILED, value=fault))
        return self._after_timeout(default)

    def _finished(self, entry: KnownEntry, default: Any) -> Any:
        if entry.state is JournalState.DONE:
            stored = StoredValue(entry.value, entry.encoding)
            return self._durable.decode(self._key, stored, self._wanted)
        fault = self._durable.decode_error(entry)
        if fault.error_type == _INVALID:
            raise SignalPayloadInvalid(self._name, type_name(self._wanted), fault.reason)
        return self._after_timeout(default)

    def _after_timeout(self, default: Any) -> Any:
        if default is NO_DEFAULT:
            raise SignalTimeout(self._name)
        return default


async def read_inbox(durable: Durable, *, since_ms: int = 0) -> bool:
    """The signals are read, at this time or later; were they read only now?"""
    services, attempt = durable.services, durable.attempt
    if services.inbox(attempt, since_ms=since_ms) is not None:
        return False
    with durable.parking.busy():
        await services.refresh_inbox(attempt, durable.journal.now_ms)
    return True


def take_signal(durable: Durable, name: str, due_ms: int | None) -> InboxSignal | None:
    """The first signal of this name that came in time; no other call gets it."""
    inbox = durable.services.inbox(durable.attempt)
    for signal in () if inbox is None else inbox.signals:
        if (
            signal.signal_name == name
            and (due_ms is None or epoch_ms(signal.accepted_at) <= due_ms)
            and signal.signal_seq not in durable.taken
        ):
            durable.taken.add(signal.signal_seq)
            return signal
    return None


SEND_ERRORS: Final = (NotFound, TargetNotSignalable, ValidationError)
"""Why a signal is refused; the handler gets these errors as they are."""


def sending(
    durable: Durable, key: EntryKey, execution_id: ExecutionId, name: str, payload: object
) -> StepRun:
    """The step that sends a signal to another execution: it arrives once."""

    async def send() -> None:
        try:
            stored = durable.values.encode(payload)
        except Unstorable as error:
            raise invalid_input("payload", None, error.reason) from None
        signal = NewSignal(
            execution_id=execution_id,
            signal_id=durable.effect_key(key),
            signal_name=name,
            payload=stored.data,
            encoding=stored.encoding,
            source_type="execution",
            source_identity=str(durable.attempt.execution_id),
            idempotency_key=str(durable.effect_key(key)),
        )
        await durable.services.send_signal(durable.attempt, signal)

    step = StepSettings(name=key.name, function=send, raises=SEND_ERRORS)
    return StepRun(durable, key, step, ())
