"""What a suspension is asked for: the waitpoints, the condition, the timeout; and the answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from flowfabric.conditions import MAX_NAME, Condition, OperatorOnly, check_condition, keys_of
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import AlreadySatisfied, EngineError, invalid_input
from flowfabric.ids import (
    ExecutionId,
    check_list,
    check_text,
    check_type,
    clean_text,
    new_uuid,
)
from flowfabric.instants import check_instant
from flowfabric.policy import milliseconds
from flowfabric.states import SuspensionReason, SuspensionRequester, TimeoutBehavior
from flowfabric.tokens import WaitpointToken

E = TypeVar("E", SuspensionReason, SuspensionRequester, TimeoutBehavior)

_MAX_SEQ: Final = 2**31 - 1
_ALIASES: Final = {"auto_resume": TimeoutBehavior.AUTO_RESUME}


class Fresh(msgspec.Struct, frozen=True, kw_only=True):
    """A waitpoint that the suspension makes.

    Without a key the first one takes the first key that the condition names, or a key made of its
    id if the condition names none.
    """

    waitpoint_key: str | None = None
    waitpoint_id: UUID = msgspec.field(default_factory=new_uuid)


class UsePending(msgspec.Struct, frozen=True, kw_only=True):
    """A waitpoint that was made before and is pending; its token stays as it is."""

    waitpoint_id: UUID


Binding: TypeAlias = Fresh | UsePending


class ResumePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How a resumed execution goes on: at once, or after `resume_delay`."""

    resume_target: str = "runnable"
    consume_matched_signals: bool = True
    retain_signal_buffer_until_closed: bool = False
    resume_delay: float | timedelta | None = None
    close_waitpoint_on_resume: bool = True

    def __post_init__(self) -> None:
        if self.resume_target != "runnable":
            raise invalid_input("resume_target", self.resume_target, "must be 'runnable'")
        if self.resume_delay is not None and self._delay_ms < 0:
            raise invalid_input("resume_delay", self.resume_delay, "must not be negative")

    @property
    def _delay_ms(self) -> int:
        return milliseconds(self.resume_delay or 0, field="resume_delay")

    def as_json(self) -> str:
        """The policy as it is stored."""
        stored = msgspec.structs.asdict(self)
        del stored["resume_delay"]
        stored["resume_delay_ms"] = None if self.resume_delay is None else self._delay_ms
        return msgspec.json.encode(stored).decode()


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """What an execution is suspended for, and until when; checked when it is made.

    The last four are for handlers, which may wait for several things at once and run again when
    any of them is there: their waitpoints stay open (`keeps_waitpoints`), signals of these names
    resume them, and so does the decision of these joins of children. A handler that waits for
    signals and has read its inbox up to `signals_read` is not suspended if more has arrived. Raises
    `ValidationError(invalid_input)`.
    """

    bindings: tuple[Binding, ...] = ()
    condition: Condition = OperatorOnly()
    reason: SuspensionReason = SuspensionReason.WAITING_FOR_SIGNAL
    requested_by: SuspensionRequester = SuspensionRequester.WORKER
    timeout_at: datetime | None = None
    timeout_behavior: TimeoutBehavior = TimeoutBehavior.FAIL
    resume_policy: ResumePolicy = ResumePolicy()
    continuation_metadata_pointer: str | None = None
    idempotency_key: str | None = None
    suspension_id: UUID = msgspec.field(default_factory=new_uuid)
    detail: str | None = None
    """What the attempt waits for, in words; `explain` shows it."""
    keeps_waitpoints: bool = False
    awaits_signals: tuple[str, ...] = ()
    signals_read: int | None = None
    awaits_joins: tuple[UUID, ...] = ()

    def __post_init__(self) -> None:
        self._keep(bindings=_bindings(self.bindings, self.condition))
        self._keep(reason=_word(SuspensionReason, self.reason, field="reason"))
        self._keep(requested_by=_word(SuspensionRequester, self.requested_by, field="requested_by"))
        behavior = _ALIASES.get(self.timeout_behavior, self.timeout_behavior)
        self._keep(timeout_behavior=_word(TimeoutBehavior, behavior, field="timeout_behavior"))
        if self.timeout_at is not None:
            check_instant(self.timeout_at, field="timeout_at")
        check_type(self.resume_policy, ResumePolicy, field="resume_policy")
        if self.continuation_metadata_pointer is not None:
            pointer = self.continuation_metadata_pointer
            check_text(pointer, field="continuation_metadata_pointer", at_most=1024)
        if self.idempotency_key:
            check_text(self.idempotency_key, field="idempotency_key", at_most=1024)
        else:
            self._keep(idempotency_key=None)
        check_type(self.suspension_id, UUID, field="suspension_id")
        if self.detail is not None:
            self._keep(detail=clean_text(self.detail, at_most=4096))
        self._check_awaited()
        self.check_keys([getattr(each, "waitpoint_key", None) for each in self.bindings])

    @property
    def is_handler(self) -> bool:
        """Is it the handler itself that waits, and runs again from its top?"""
        return (
            self.keeps_waitpoints
            or bool(self.awaits_signals)
            or bool(self.awaits_joins)
            or self.signals_read is not None
        )

    def check_keys(self, keys: Sequence[str | None]) -> None:
        """The condition fits the keys of the waitpoints, as far as they are known (not None)."""
        known = [key for key in keys if key is not None]
        if len(known) < len(keys):
            known += [key for key in _named_keys(self.condition) if key not in known]
        check_condition(
            self.condition,
            bindings=known or ["?"] * len(keys),
            timeout=self.timeout_at is not None,
            handler=self.is_handler,
        )

    def _check_awaited(self) -> None:
        self._keep(awaits_signals=check_list(self.awaits_signals, field="awaits_signals"))
        for name in self.awaits_signals:
            check_text(name, field="awaits_signals", at_most=MAX_NAME)
        self._keep(awaits_joins=check_list(self.awaits_joins, field="awaits_joins"))
        for join in self.awaits_joins:
            check_type(join, UUID, field="awaits_joins")
        read = self.signals_read
        if read is not None and not (type(read) is int and 0 <= read <= _MAX_SEQ):
            raise invalid_input("signals_read", read, "must be the number of a signal, or 0")

    def _keep(self, **fields: Any) -> None:
        for name, value in fields.items():
            msgspec.structs.force_setattr(self, name, value)


class SuspendRequest(Suspension, frozen=True, kw_only=True):
    """The attempt under `lease` is to be suspended."""

    lease: Lease


class WaitpointDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A waitpoint of a suspension, and the token by which an outsider signals it."""

    waitpoint_id: UUID
    waitpoint_key: str
    token: WaitpointToken


class Suspended(msgspec.Struct, frozen=True, kw_only=True):
    """The lease is given up; the attempt goes on, under the same index, once it is resumed.

    `repeated` if the same call had suspended it before. The waitpoints come in the order of the
    bindings.
    """

    execution_id: ExecutionId
    suspension_id: UUID
    waitpoints: tuple[WaitpointDetails, ...] = ()
    repeated: bool = False


class SatisfiedAlready(msgspec.Struct, frozen=True, kw_only=True):
    """Signals that had arrived satisfy the condition: the lease is kept, the waitpoints are closed.

    `observe_signals` has the signals.
    """

    execution_id: ExecutionId
    suspension_id: UUID
    waitpoints: tuple[WaitpointDetails, ...] = ()
    repeated: bool = False


class NothingToSuspendFor(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the handler waits for is there; nothing was written, the lease is kept."""

    execution_id: ExecutionId


SuspendAnswer: TypeAlias = Suspended | SatisfiedAlready | NothingToSuspendFor


def require_suspended(answer: SuspendAnswer | EngineError) -> Suspended:
    """The answer, if the execution is suspended; raises the refusal, or `AlreadySatisfied`."""
    if isinstance(answer, EngineError):
        raise answer
    if not isinstance(answer, Suspended):
        raise AlreadySatisfied(answer.execution_id)
    return answer


def _bindings(given: object, condition: Condition) -> tuple[Binding, ...]:
    """The bindings, each `Fresh` with its key."""
    bindings = check_list(given, field="bindings")
    return tuple([_binding(each, place, condition) for place, each in enumerate(bindings)])


def _binding(binding: object, place: int, condition: Condition) -> Binding:
    if not isinstance(binding, Fresh | UsePending):
        why = f"must be Fresh or UsePending, not {type(binding).__name__}"
        raise invalid_input("bindings", binding, why)
    check_type(binding.waitpoint_id, UUID, field="waitpoint_id")
    if isinstance(binding, UsePending):
        return binding
    if binding.waitpoint_key is None and place == 0:
        first = next(iter(_named_keys(condition)), f"wpk:{binding.waitpoint_id}")
        binding = msgspec.structs.replace(binding, waitpoint_key=first)
    if not binding.waitpoint_key:
        return msgspec.structs.replace(binding, waitpoint_key="")  # refused with the condition
    check_text(binding.waitpoint_key, field="waitpoint_key")
    return binding


def _named_keys(condition: Condition) -> list[str]:
    try:
        return keys_of(condition)
    except (AttributeError, TypeError):  # not a condition: refused by `check_condition`
        return []


def _word(words: type[E], given: str, *, field: str) -> E:
    try:
        return words(given)
    except ValueError:
        raise invalid_input(field, given, f"must be one of {', '.join(words)}") from None
