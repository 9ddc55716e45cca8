"""The first of several: signals, a timer, children, waitpoints."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import msgspec

from flowfabric.conditions import AnyCondition, Signal
from flowfabric.errors import ConfigError, EntryDecodeError, SignalPayloadInvalid
from flowfabric.instants import epoch_ms
from flowfabric.states import GroupState, JournalKind, JournalState
from flowfabric.worker.child_batch import Child
from flowfabric.worker.durable.awaited import Awaited
from flowfabric.worker.durable.values import StoredValue
from flowfabric.worker.durable.waitpoint_look import WaitpointLook, first_of, look_at
from flowfabric.worker.durable.waitpoints import (
    WaitpointCondition,
    close_waitpoints,
    timeout_fault,
    timeout_of,
)
from flowfabric.worker.durable.waits import check_duration, read_inbox, take_signal
from flowfabric.worker.repeat_while_leased import repeat_while_leased

if TYPE_CHECKING:
    from flowfabric.engine.journal.entry import EntryWrite
    from flowfabric.worker.durable.durable import Durable
    from flowfabric.worker.durable.keys import EntryKey


class SignalArm(msgspec.Struct, frozen=True):
    """A signal of this name; its payload is read as `wanted`."""

    name: str
    wanted: Any = Any


class TimerArm(msgspec.Struct, frozen=True):
    """A while has passed since the handler first asked."""

    milliseconds: int


Arm: TypeAlias = SignalArm | TimerArm | Child[Any] | WaitpointCondition


class Selected(msgspec.Struct, frozen=True):
    """The arm that was first: its name, and what came."""

    name: str
    value: Any = None


class _Winner(msgspec.Struct, frozen=True):
    """What the journal holds of a decided select."""

    name: str
    payload: bytes | None = None
    encoding: str | None = None
    signals: list[Signal] = []


def timer(duration: float | timedelta) -> TimerArm:
    """The arm of a timer."""
    return TimerArm(check_duration(duration, field="duration"))


def check_arms(arms: Mapping[str, object]) -> None:
    """Raise `ConfigError` for something that cannot be waited for by `ctx.select`."""
    if not arms:
        raise ConfigError("select", "arms", "needs at least one arm")
    for name, arm in arms.items():
        if not isinstance(arm, SignalArm | TimerArm | Child | WaitpointCondition):
            why = "must be a signal, a timer, a child or a waitpoint, not a "
            raise ConfigError("select", name, why + type(arm).__name__)
    if sum(isinstance(arm, TimerArm) for arm in arms.values()) > 1:
        raise ConfigError("select", "arms", "may have one timer only")
    for name, arm in arms.items():
        if isinstance(arm, Child) and arm.group is None:
            raise ConfigError("select", name, "is a detached child and cannot be waited for")


class Select:
    """One call of `ctx.select`."""

    def __init__(self, durable: Durable, key: EntryKey, arms: Mapping[str, Arm]) -> None:
        self._durable, self._key, self._arms = durable, key, arms
        self._started_ms = durable.journal.now_ms
        timers = [arm.milliseconds for arm in arms.values() if isinstance(arm, TimerArm)]
        self._due_ms = self._started_ms + timers[0] if timers else None
        self._looks: dict[str, WaitpointLook] = {}
        """The arms of waitpoints, as they were seen last."""

    async def result(self) -> Selected:
        """The arm that was first; of several that are ready, the first that is named."""
        durable = self._durable
        entry = durable.journal.find(self._key, JournalKind.SELECT)
        if entry is None:
            await durable.frontier(self._key)
        elif entry.state is JournalState.DONE:
            stored = StoredValue(entry.value, entry.encoding)
            return await self._selected(durable.decode(self._key, stored, _Winner))
        elif entry.state is JournalState.FAILED:
            raise timeout_of(self._key, durable.decode_error(entry))
        else:
            self._started_ms = epoch_ms(entry.started_at)
            self._due_ms = None if entry.due_at is None else epoch_ms(entry.due_at)
        while True:
            over = self._due_ms is not None and durable.journal.now_ms >= self._due_ms
            await self._read_signals(over=over)
            for name, arm in self._arms.items():
                winner, signal_seq = await self._ready(name, arm, over=over)
                if winner is not None:
                    return await self._won(winner, signal_seq)
            if self._is_hopeless:
                await self._timed_out()
            await durable.parking.until_changed(self._awaited(), self._opening)

    async def _read_signals(self, *, over: bool) -> None:
        """Once the timer is over, what came before it is known."""
        if any(isinstance(arm, SignalArm) for arm in self._arms.values()):
            since_ms = self._due_ms if over and self._due_ms is not None else 0
            await read_inbox(self._durable, since_ms=since_ms)

    async def _ready(self, name: str, arm: Arm, *, over: bool) -> tuple[_Winner | None, int | None]:
        durable = self._durable
        match arm:
            case TimerArm():
                return (_Winner(name) if over else None), None
            case SignalArm():
                signal = take_signal(durable, arm.name, self._due_ms)
                if signal is None:
                    return None, None
                winner = _Winner(name, signal.payload, signal.encoding)
                return winner, signal.signal_seq
            case Child():
                group = arm.group
                assert group is not None
                with durable.parking.busy():
                    join = await repeat_while_leased(
                        durable.attempt, lambda: durable.services.engine.read_join(group)
                    )
                decided = join.group_state is not GroupState.PENDING
                return (_Winner(name) if decided else None), None
            case WaitpointCondition():
                self._looks[name] = look = await look_at(durable, arm, self._due_ms)
                signals = look.satisfied_by
                return (None if signals is None else _Winner(name, signals=signals)), None

    async def _won(self, winner: _Winner, signal_seq: int | None) -> Selected:
        value = StoredValue(msgspec.json.encode(winner), "json")
        await self._durable.record(
            self._entry(JournalState.DONE, value=value, signal_seq=signal_seq)
        )
        arm = self._arms[winner.name]
        if isinstance(arm, WaitpointCondition):
            await close_waitpoints(self._durable, arm)
        return await self._selected(winner)

    async def _selected(self, winner: _Winner) -> Selected:
        arm = self._arms.get(winner.name)
        match arm:
            case None:
                raise self._durable.journal.diverge(f"{self._key} without arm {winner.name!r}")
            case TimerArm():
                return Selected(winner.name)
            case SignalArm():
                stored = StoredValue(winner.payload, winner.encoding)
                try:
                    value = self._durable.values.decode(arm.name, stored, arm.wanted)
                except EntryDecodeError as error:
                    raise SignalPayloadInvalid(arm.name, error.wanted, error.why) from None
                return Selected(winner.name, value)
            case Child():
                return Selected(winner.name, await arm.result())
            case WaitpointCondition():
                return Selected(winner.name, winner.signals)

    @property
    def _is_hopeless(self) -> bool:
        """Are all arms waitpoints that take no more signals?"""
        looks = self._looks
        return len(looks) == len(self._arms) and all(each.is_hopeless for each in looks.values())

    async def _timed_out(self) -> NoReturn:
        closed = (each.closed for each in self._looks.values() if each.closed is not None)
        fault = timeout_fault(next(closed, None))
        await self._durable.record(self._entry(JournalState.FAILED, value=fault))
        raise timeout_of(self._key, fault)

    def _awaited(self) -> Awaited:
        """When a waitpoint expires the handler runs again, and waits for the others."""
        arms = self._arms.values()
        looks = [each for each in self._looks.values() if not each.is_hopeless]
        conditions = tuple(each.remaining for each in looks if each.remaining is not None)
        return Awaited(
            detail=f"waits for the first of {', '.join(self._arms)}",
            due_ms=first_of(self._due_ms, *(each.closes_ms for each in looks)),
            signals=tuple(arm.name for arm in arms if isinstance(arm, SignalArm)),
            joins=tuple(arm.group for arm in arms if isinstance(arm, Child) and arm.group),
            waitpoints=tuple(dict.fromkeys(each for look in looks for each in look.waitpoints)),
            condition=AnyCondition(conditions) if conditions else None,
        )

    def _opening(self) -> EntryWrite | None:
        return self._durable.journal.opening(
            self._key, JournalKind.SELECT, due_ms=self._due_ms, started_ms=self._started_ms
        )

    def _entry(self, state: JournalState, **more: Any) -> EntryWrite:
        return self._durable.journal.entry(
            self._key,
            JournalKind.SELECT,
            state,
            started_ms=self._started_ms,
            due_ms=self._due_ms,
            **more,
        )
