"""Waitpoints: places where outsiders with a token signal a handler, and waits for their signals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias
from urllib.parse import urlencode
from uuid import UUID

import msgspec

from flowfabric.conditions import (
    AllConditions,
    Condition,
    CountOf,
    Distinct,
    Signal,
    Single,
    TimeoutOnly,
    check_condition,
    keys_of,
)
from flowfabric.config import callback_url
from flowfabric.engine.suspensions.suspension import SuspendRequest
from flowfabric.errors import SignalTimeout, invalid_input
from flowfabric.instants import epoch_ms, instant
from flowfabric.states import (
    JournalKind,
    JournalState,
    SuspensionReason,
    TimeoutBehavior,
)
from flowfabric.tokens import WaitpointToken
from flowfabric.worker.attempt_suspended import AttemptSuspended
from flowfabric.worker.durable.awaited import Awaited
from flowfabric.worker.durable.services import count_entries
from flowfabric.worker.durable.step_errors import StoredError
from flowfabric.worker.durable.values import StoredValue
from flowfabric.worker.durable.waitpoint_look import RESUMED, WaitpointLook, first_of, look_at
from flowfabric.worker.durable.waits import check_duration
from flowfabric.worker.repeat_while_leased import repeat_while_leased

if TYPE_CHECKING:
    from flowfabric.engine.journal.entry import EntryWrite
    from flowfabric.ids import ExecutionId
    from flowfabric.worker.durable.durable import Durable
    from flowfabric.worker.durable.keys import EntryKey

OnTimeout: TypeAlias = Literal["resume", "fail", "cancel", "expire", "escalate"]
_BEHAVIORS: Final = {
    "resume": TimeoutBehavior.AUTO_RESUME,
    "fail": TimeoutBehavior.FAIL,
    "cancel": TimeoutBehavior.CANCEL,
    "expire": TimeoutBehavior.EXPIRE,
    "escalate": TimeoutBehavior.ESCALATE,
}
_CLOSED: Final = "closed"


class HandlerWaitpoint:
    """A waitpoint of a handler: give its id and token to the outsider that is to signal."""

    def __init__(
        self,
        name: str,
        execution_id: ExecutionId,
        waitpoint_id: UUID,
        key: str,
        token: WaitpointToken,
    ) -> None:
        self.name, self.waitpoint_id, self.token = name, waitpoint_id, token
        self._execution_id, self._key = execution_id, key

    def __repr__(self) -> str:
        return f"<waitpoint {self.name!r} {self.waitpoint_id}>"

    @property
    def url(self) -> str | None:
        """The address to which the outsider posts its answer, with the token; keep it as secret.

        None unless `FF_CALLBACK_URL` says where the server is, which takes callbacks with
        `FF_CALLBACKS=1`. `&signal=approved` names the signal, which is `callback` otherwise.
        """
        server = callback_url()
        if server is None:
            return None
        place = f"{self._execution_id.partition_key}.{self._execution_id.uuid}/{self.waitpoint_id}"
        return f"{server}/v1/callbacks/{place}?{urlencode({'token': self.token.reveal()})}"

    def named(self, name: str) -> WaitpointCondition:
        """A signal of this name has come."""
        return WaitpointCondition(Single(self._key, name), (self,))

    def any(self) -> WaitpointCondition:
        """Any signal has come."""
        return WaitpointCondition(Single(self._key), (self,))

    def count(
        self, n: int, *, distinct: Distinct = "signals", name: str | None = None
    ) -> WaitpointCondition:
        """`n` signals have come, counted by id or by source; with `name`, those of that name."""
        return WaitpointCondition(CountOf(n, (self._key,), distinct, name), (self,))


class WaitpointCondition(msgspec.Struct, frozen=True):
    """What `ctx.wait` waits for; `a & b` waits for both."""

    condition: Condition
    waitpoints: tuple[HandlerWaitpoint, ...]

    def __and__(self, other: WaitpointCondition) -> WaitpointCondition:
        members = [*_members(self.condition), *_members(other.condition)]
        waitpoints = dict.fromkeys((*self.waitpoints, *other.waitpoints))
        return WaitpointCondition(AllConditions(tuple(members)), tuple(waitpoints))

    def check(self) -> None:
        """Raise `ValidationError(invalid_input)` for a condition that can never hold."""
        check_condition(
            self.condition, bindings=keys_of(self.condition), timeout=True, handler=True
        )

    @property
    def ids(self) -> tuple[UUID, ...]:
        return tuple(each.waitpoint_id for each in self.waitpoints)


def check_condition_given(condition: object) -> None:
    """Raise `ValidationError(invalid_input)` for what `ctx.wait` cannot wait for."""
    if not isinstance(condition, WaitpointCondition):
        name = type(condition).__name__
        why = f"must be a condition, such as waitpoint.any(), not a {name}"
        raise invalid_input("condition", None, why)
    condition.check()


def _members(condition: Condition) -> Sequence[Condition]:
    return condition.members if isinstance(condition, AllConditions) else (condition,)


async def make_waitpoint(
    durable: Durable, key: EntryKey, expires: float | timedelta, answer: type | None
) -> HandlerWaitpoint:
    """The waitpoint of this call: made the first time, and the same whenever the handler runs."""
    journal, attempt, engine = durable.journal, durable.attempt, durable.services.engine
    length = check_duration(expires, field="expires") / 1000
    schema = None if answer is None else _schema_of(answer)
    own, waitpoint_id = attempt.execution_id, durable.waitpoint_id(key)
    entry = journal.find(key, JournalKind.WAITPOINT)
    if entry is None:
        await durable.frontier(key)
        await durable.flush()
        write = journal.entry(key, JournalKind.WAITPOINT, JournalState.DONE)
        made = await durable.fenced(
            lambda: engine.create_waitpoint(
                attempt.lease,
                str(key),
                expires_in=length,
                waitpoint_id=waitpoint_id,
                entry=write,
                answer_schema=schema,
            )
        )
        count_entries([write])
        return HandlerWaitpoint(key.name, own, waitpoint_id, str(key), made.token)
    token = await durable.token_of(waitpoint_id)
    return HandlerWaitpoint(key.name, own, waitpoint_id, str(key), token)


def _schema_of(answer: type) -> dict[str, Any]:
    """The JSON schema of a class; raises `ValidationError(invalid_input)`."""
    try:
        own = getattr(answer, "model_json_schema", None)  # of pydantic
        found: dict[str, Any] = own() if own is not None else msgspec.json.schema(answer)
    except TypeError as error:
        raise invalid_input("answer", answer, f"has no JSON schema: {error}") from None
    if "$ref" not in found and found.get("type") != "object":
        raise invalid_input("answer", answer, "must be a class whose values are JSON objects")
    return found


class WaitpointWait:
    """One wait for the signals of waitpoints."""

    def __init__(
        self,
        durable: Durable,
        key: EntryKey,
        wanted: WaitpointCondition,
        due_ms: int | None,
        on_timeout: OnTimeout,
    ) -> None:
        if on_timeout not in _BEHAVIORS:
            raise invalid_input("on_timeout", on_timeout, f"must be one of {sorted(_BEHAVIORS)}")
        self._durable, self._key, self._wanted = durable, key, wanted
        self._due_ms, self._on_timeout = due_ms, on_timeout
        self._started_ms = durable.journal.now_ms
        self._escalated = False

    async def result(self) -> list[Signal]:
        """The signals that satisfied the condition; raises `SignalTimeout`."""
        durable = self._durable
        entry = durable.journal.find(self._key, JournalKind.WAIT)
        if entry is None:
            await durable.frontier(self._key)
        elif entry.state is JournalState.DONE:
            stored = StoredValue(entry.value, entry.encoding)
            return durable.decode(self._key, stored, list[Signal])
        elif entry.state is JournalState.FAILED:
            raise timeout_of(self._key, durable.decode_error(entry))
        else:
            self._started_ms = epoch_ms(entry.started_at)
            self._due_ms = None if entry.due_at is None else epoch_ms(entry.due_at)
        while True:
            over = self._is_over()
            look = await look_at(durable, self._wanted, None if self._escalated else self._due_ms)
            if look.satisfied_by is not None:
                return await self._satisfied(look.satisfied_by)
            if look.closed is not None:
                await self._closed(look.closed, over=over)
            elif over or (look.is_hopeless and not self._escalated):
                await self._timed_out()
            await durable.parking.until_changed(self._awaited(look), self._opening)

    def _is_over(self) -> bool:
        """Has the timeout passed? What is read after this has come in time, or too late."""
        due_ms = self._due_ms
        return due_ms is not None and not self._escalated and self._durable.journal.now_ms >= due_ms

    @property
    def _detail(self) -> str:
        names = ", ".join(repr(each.name) for each in self._wanted.waitpoints)
        return f"waits for signals on {names}" + (", in vain" if self._escalated else "")

    def _awaited(self, look: WaitpointLook) -> Awaited:
        review, callback = (
            SuspensionReason.WAITING_FOR_OPERATOR_REVIEW,
            SuspensionReason.WAITING_FOR_CALLBACK,
        )
        return Awaited(
            detail=self._detail,
            due_ms=None if self._escalated else first_of(self._due_ms, look.closes_ms),
            waitpoints=look.waitpoints,
            condition=look.remaining,
            on_timeout=_BEHAVIORS[self._on_timeout],
            reason=review if self._escalated else callback,
        )

    def _opening(self) -> EntryWrite | None:
        return self._durable.journal.opening(
            self._key, JournalKind.WAIT, due_ms=self._due_ms, started_ms=self._started_ms
        )

    def _entry(self, state: JournalState, value: Any = None) -> EntryWrite:
        return self._durable.journal.entry(
            self._key,
            JournalKind.WAIT,
            state,
            value=value,
            started_ms=self._started_ms,
            due_ms=self._due_ms,
        )

    async def _satisfied(self, signals: list[Signal]) -> list[Signal]:
        value = StoredValue(msgspec.json.encode(signals), "json")
        await self._durable.record(self._entry(JournalState.DONE, value))
        await close_waitpoints(self._durable, self._wanted)
        return signals

    async def _closed(self, why: str, *, over: bool) -> None:
        """An operator closed the waitpoint: as a timeout, but no other operator is asked."""
        if self._on_timeout == "escalate" or (self._on_timeout == "resume" and not over):
            await self._give_up(why)
        await self._timed_out()

    async def _give_up(self, closed: str | None = None) -> NoReturn:
        fault = timeout_fault(closed)
        await self._durable.record(self._entry(JournalState.FAILED, fault))
        raise timeout_of(self._key, fault)

    async def _timed_out(self) -> None:
        """Raise `SignalTimeout`; or the execution ends as `on_timeout` says; or return to wait."""
        durable, behavior = self._durable, _BEHAVIORS[self._on_timeout]
        if behavior is TimeoutBehavior.ESCALATE:
            self._escalated = True
            return
        if behavior is TimeoutBehavior.AUTO_RESUME:
            await self._give_up()
        # The handler still runs, because of something beside this wait. It is suspended with a
        # timeout that has passed, and ends as one that was suspended all the time.
        request = SuspendRequest(
            lease=durable.attempt.lease,
            condition=TimeoutOnly(),
            reason=SuspensionReason.WAITING_FOR_CALLBACK,
            timeout_at=instant(durable.journal.now_ms),
            timeout_behavior=behavior,
            detail=self._detail,
            keeps_waitpoints=True,
        )
        durable.parking.check()
        with durable.parking.busy(), durable.attempt.giving_up():
            if await durable.parking.suspended_for(request):
                durable.parking.gave_up()
                raise AttemptSuspended


def timeout_fault(closed: str | None) -> StoredError:
    """What is stored of a wait that timed out, or whose waitpoint an operator closed."""
    state = {} if closed is None else {_CLOSED: closed}
    reason = "timed out" if closed is None else f"its waitpoint was closed ({closed})"
    return StoredError(error_type="SignalTimeout", category="timeout", reason=reason, state=state)


def timeout_of(key: EntryKey, fault: StoredError) -> SignalTimeout:
    """The error to raise, the same in every run."""
    return SignalTimeout(key.name, closed=fault.state.get(_CLOSED))


async def close_waitpoints(durable: Durable, wanted: WaitpointCondition) -> None:
    """The waitpoints take no more signals: what waited for them is recorded."""
    engine, attempt = durable.services.engine, durable.attempt
    with durable.parking.busy():
        await repeat_while_leased(
            attempt,
            lambda: engine.close_waitpoints(
                attempt.execution_id, wanted.ids, reason=RESUMED, by_handler=True
            ),
        )
