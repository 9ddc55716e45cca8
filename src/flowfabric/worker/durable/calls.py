"""The durable calls of a handler, as methods of its context.

A call gets its key when it is made, not when it is awaited: these are plain functions that return
a coroutine. So calls that are gathered have the same keys whenever the handler runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, TypeVarTuple, overload
from uuid import UUID

from flowfabric.conditions import Signal
from flowfabric.engine.journal.entry import MAX_NAME, PATCH_PREFIX, check_entry_name
from flowfabric.errors import ConfigError, ValidationError, invalid_input
from flowfabric.ids import ExecutionId, check_type
from flowfabric.instants import instant
from flowfabric.policy import Retry
from flowfabric.states import JournalKind
from flowfabric.worker.child_batch import ChildCall, check_call
from flowfabric.worker.durable import compensations, restart, select, step_tx, waitpoints, waits
from flowfabric.worker.durable.child_calls import ChildCalls
from flowfabric.worker.durable.select import Arm, Selected, SignalArm, TimerArm
from flowfabric.worker.durable.step import (
    DeclaredStep,
    StepSettings,
    check_callable,
    check_step_retry,
    check_timeout,
    exception_types,
)
from flowfabric.worker.durable.step_tx import OpenStep
from flowfabric.worker.durable.steps import StepRun, current_step, refuse_nested
from flowfabric.worker.durable.waitpoints import HandlerWaitpoint, OnTimeout, WaitpointCondition

if TYPE_CHECKING:
    from flowfabric.db.rows import Connection
    from flowfabric.worker.durable.durable import Durable
    from flowfabric.worker.transaction_pool import Isolation

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_SENDS = "signal:"
_OPTIONS = frozenset({"retry", "timeout", "raises", "returns", "lazy"})
"""The options of a step, besides its key."""


class DurableCalls(ChildCalls):
    """Steps, sleeps, waits and children. What they have done is recorded and never done again."""

    __slots__ = ()

    def _durable_calls(self) -> Durable:
        """The durable calls of this attempt; raises `ConfigError` where a handler has none."""
        raise NotImplementedError

    # Steps.

    @overload
    def step(
        self,
        name: str,
        function: Callable[[*Ts], Awaitable[T]],
        /,
        *args: *Ts,
        key: str | None = None,
        retry: Retry | None = None,
        timeout: float | timedelta | None = None,
        raises: tuple[type[BaseException], ...] = (),
        returns: Any = None,
        lazy: bool = False,
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[[*Ts], T],
        /,
        *args: *Ts,
        key: str | None = None,
        retry: Retry | None = None,
        timeout: float | timedelta | None = None,
        raises: tuple[type[BaseException], ...] = (),
        returns: Any = None,
        lazy: bool = False,
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def step(
        self,
        step: DeclaredStep[*Ts, Coroutine[Any, Any, T]],
        /,
        *args: *Ts,
        key: str | None = None,
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def step(
        self, step: DeclaredStep[*Ts, T], /, *args: *Ts, key: str | None = None
    ) -> Coroutine[Any, Any, T]: ...
    def step(  # pyright: ignore[reportInconsistentOverload]  *given stands for any *args
        self, first: Any, /, *given: Any, key: str | None = None, **options: Any
    ) -> Coroutine[Any, Any, Any]:
        """The result of the function, which runs once: a recorded result is returned instead.

        A plain function runs in a thread. `key` tells apart calls of the same name that several
        tasks make. `retry` tries again in place, or later without holding the lease if the pause is
        longer; `timeout` limits each try; classes in `raises` come back as themselves, other errors
        as `StepFailed`; `returns` is the type of the result, if the function has no annotation. A
        `lazy` step is recorded with the next one: it may run again after a crash.
        """
        durable = self._durable_calls()
        step, args = step_of(first, given, options)
        return StepRun(durable, durable.allot(step.name, key), step, args).result()

    def step_tx(
        self,
        name: str,
        function: Callable[[Connection, *Ts], Awaitable[T]],
        *args: *Ts,
        key: str | None = None,
        isolation: Isolation = "read committed",
        returns: Any = None,
    ) -> Coroutine[Any, Any, T]:
        """The result of `function(conn, …)`: its SQL and its result are committed together, once.

        Serialization conflicts run the function again, three times in all. The function must not
        commit.
        """
        durable = self._durable_calls()
        step = StepSettings(name=name, function=check_callable(name, function), returns=returns)
        run = StepRun(durable, durable.allot(name, key), step, args)
        return step_tx.run_step_tx(durable, run, isolation)

    def begin_step(
        self, name: str, *, key: str | None = None, returns: Any = Any
    ) -> Coroutine[Any, Any, OpenStep]:
        """A step whose work the handler does itself, with any driver or framework.

        If `entry.done` its result is `entry.value`; else do the work, and
        `await entry.complete(value, conn=…)` in its transaction.
        """
        durable = self._durable_calls()
        step = step_tx.open_step(name, returns)
        return step_tx.begin_step(durable, StepRun(durable, durable.allot(name, key), step, ()))

    @property
    def effect_key(self) -> str:
        """Inside a step: the same text in every try, attempt and worker.

        Give it to the outside system as its idempotency key.
        """
        inside = current_step.get()
        if inside is None:
            raise ConfigError(
                "effect_key", "step", "there is one only inside the function of a step"
            )
        return inside.effect_key

    # Time and chance.

    def now(self, *, key: str | None = None) -> datetime:
        """The time on the clock of the database; the same whenever the handler runs."""
        durable = self._durable_calls()
        ms: int = durable.noted("now", JournalKind.NOW, durable.journal.now_ms, key)
        return instant(ms)

    def random(self, *, key: str | None = None) -> float:
        """A number from 0 up to 1, the same whenever the handler runs; not secret."""
        durable = self._durable_calls()
        return durable.derived_random(durable.allot("random", key))

    def uuid(self, *, key: str | None = None) -> UUID:
        """A UUID, the same whenever the handler runs; not secret."""
        durable = self._durable_calls()
        return durable.derived_uuid(durable.allot("uuid", key))

    # Versions.

    def patched(self, name: str) -> bool:
        """May the handler take the new way? Executions that began on the old way keep it."""
        durable = self._durable_calls()
        return bool(durable.noted_once(PATCH_PREFIX + check_entry_name(name), JournalKind.PATCH))

    @property
    def version(self) -> int:
        """The `version=` of the task with which this execution began; 0 if it had none."""
        return self._durable_calls().version

    @property
    def restart_advised(self) -> bool:
        """Is the journal so long that the handler should call `restart`?"""
        return self._durable_calls().journal.restart_advised

    # Sleeping and waiting.

    @overload
    def sleep(
        self, duration: float | timedelta, /, *, key: str | None = None
    ) -> Coroutine[Any, Any, None]: ...
    @overload
    def sleep(
        self, name: str, duration: float | timedelta, /, *, key: str | None = None
    ) -> Coroutine[Any, Any, None]: ...
    def sleep(self, *given: Any, key: str | None = None) -> Coroutine[Any, Any, None]:
        """Sleep, for years if need be, without holding the lease or a slot."""
        name, duration = _named(given, "duration")
        waits.check_duration(duration, field="duration")
        durable = self._durable_calls()
        return waits.sleep_for(durable, durable.allot(name, key), duration).over()

    @overload
    def sleep_until(
        self, moment: datetime, /, *, key: str | None = None
    ) -> Coroutine[Any, Any, None]: ...
    @overload
    def sleep_until(
        self, name: str, moment: datetime, /, *, key: str | None = None
    ) -> Coroutine[Any, Any, None]: ...
    def sleep_until(self, *given: Any, key: str | None = None) -> Coroutine[Any, Any, None]:
        """Sleep until an instant, without holding the lease or a slot."""
        name, moment = _named(given, "moment")
        durable = self._durable_calls()
        return waits.sleep_until(durable, durable.allot(name, key), moment).over()

    def wait_for_signal(
        self,
        name: str,
        *,
        type: Any = Any,  # noqa: A002  the word of the documentation
        timeout: float | timedelta | None = None,
        default: Any = waits.NO_DEFAULT,
        key: str | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """The payload of the first signal of this name that no other call has consumed.

        Signals that came before the handler waits are kept for it. Raises `SignalTimeout`, or
        returns `default`, when none came in time; `SignalPayloadInvalid` if the payload is not of
        this type.
        """
        durable = self._durable_calls()
        due_ms = waits.due_from(durable, timeout)
        wait = waits.SignalWait(durable, durable.allot(name, key), name, type, due_ms)
        return wait.result(default)

    def signal(
        self,
        execution_id: ExecutionId,
        name: str,
        payload: object = None,
        *,
        key: str | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Send a signal to another execution; it arrives once, however often the handler runs.

        Raises `NotFound`, `TargetNotSignalable` if that execution has ended, and `ValidationError`.
        """
        check_type(execution_id, ExecutionId, field="execution_id")
        check_entry_name(name)
        durable = self._durable_calls()
        allotted = durable.allot(_shortened(f"{_SENDS}{name}"), key)
        return waits.sending(durable, allotted, execution_id, name, payload).result()

    def waitpoint(
        self,
        name: str,
        *,
        expires: float | timedelta,
        key: str | None = None,
        answer: type | None = None,
    ) -> Coroutine[Any, Any, HandlerWaitpoint]:
        """A place where an outsider with its token can signal this execution.

        `answer` is the class of the payload that people are asked for: the dashboard draws a form
        from its JSON schema.
        """
        durable = self._durable_calls()
        return waitpoints.make_waitpoint(durable, durable.allot(name, key), expires, answer)

    def wait(
        self,
        condition: WaitpointCondition,
        *,
        timeout: float | timedelta | None = None,
        on_timeout: OnTimeout = "resume",
        name: str = "wait",
        key: str | None = None,
    ) -> Coroutine[Any, Any, list[Signal]]:
        """The signals that satisfy a condition on waitpoints, which then take no more.

        When they do not come in time, or a waitpoint expires, `on_timeout` decides: `resume` raises
        `SignalTimeout`, the others end the execution as their name says, or `escalate` it to an
        operator.
        """
        waitpoints.check_condition_given(condition)
        durable = self._durable_calls()
        due_ms = waits.due_from(durable, timeout)
        allotted = durable.allot(name, key)
        return waitpoints.WaitpointWait(durable, allotted, condition, due_ms, on_timeout).result()

    def select(self, name: str = "select", /, **arms: Arm) -> Coroutine[Any, Any, Selected]:
        """The first of several: `ctx.signal_of`, one `ctx.timer`, children, waitpoints.

        Of several that are ready the first that is named wins. The others are left as they are: a
        signal stays for a later call, and a child runs on.
        """
        select.check_arms(arms)
        durable = self._durable_calls()
        return select.Select(durable, durable.allot(name), arms).result()

    def signal_of(self, name: str, type: Any = Any) -> SignalArm:  # noqa: A002  as above
        """The arm of a signal, for `select`."""
        return SignalArm(check_entry_name(name), type)

    def timer(self, duration: float | timedelta) -> TimerArm:
        """The arm of a timer, for `select`."""
        return select.timer(duration)

    # Around the handler.

    async def restart(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Begin anew with other arguments and an empty journal; never returns.

        For handlers without an end. Signals that were not consumed are kept, children run on, and
        waitpoints are closed.
        """
        refuse_nested("restart")
        await restart.restart(self._durable_calls(), args, kwargs)

    def compensate(
        self, call: ChildCall[Any], *, key: str | None = None
    ) -> Coroutine[Any, Any, None]:
        """Run this call if the execution ends otherwise than by success, the last armed first."""
        check_call(call, field="call")
        durable = self._durable_calls()
        return compensations.compensate(
            durable, durable.allot(_shortened(call.task.kind), key), call
        )

    def disarm(self) -> Coroutine[Any, Any, None]:
        """Forget the compensations that are armed so far."""
        durable = self._durable_calls()
        return compensations.disarm(durable, durable.allot("disarm"))


def _shortened(name: str) -> str:
    """The name of an entry that is made of a longer one; its calls are counted together."""
    return name.encode()[:MAX_NAME].decode(errors="ignore")


def _named(given: tuple[Any, ...], field: str) -> tuple[Any, Any]:
    """Name and time of a sleep; raises `ValidationError(invalid_input)` for other arguments."""
    if len(given) not in (1, 2):
        raise invalid_input(
            field, len(given), f"arguments were given: write a {field}, or a name and a {field}"
        )
    return given if len(given) == 2 else ("sleep", *given)


def step_of(
    first: Any, rest: tuple[Any, ...], options: dict[str, Any]
) -> tuple[StepSettings, tuple[Any, ...]]:
    """The step and the arguments of `ctx.step(name, function, …)` or `ctx.step(declared, …)`.

    Raises `ConfigError` for what cannot be a step.
    """
    if isinstance(first, DeclaredStep):
        own = first.flowfabric_step
        if options:
            why = f"is declared with its settings; {', '.join(sorted(options))} cannot be given"
            raise ConfigError("step", own.name, why)
        return own, rest
    function = check_callable(first, rest[0] if rest else None)
    if not options:
        return StepSettings(name=first, function=function), rest[1:]
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        why = f"has no option {', '.join(unknown)}; there are {', '.join(sorted(_OPTIONS))}"
        raise ConfigError("step", str(first), why)
    try:
        timeout = check_timeout(options.pop("timeout", None))
        retry = check_step_retry(options.pop("retry", None))
        raises = exception_types(options.pop("raises", ()), field="raises")
        check_type(options.get("lazy", False), bool, field="lazy")
        step = StepSettings(
            name=first, function=function, timeout=timeout, retry=retry, raises=raises, **options
        )
    except ValidationError as error:
        raise ConfigError("step", str(first), error.detail) from None
    return step, rest[1:]
