"""The durable calls of a handler that runs in a thread, as methods of `ctx.sync`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    TypeVarTuple,
    overload,
)

from flowfabric.budgets import GivenBudgets, OwnBudgets
from flowfabric.errors import WrongThread
from flowfabric.policy import Retry
from flowfabric.worker.child_batch import Child, ChildCall
from flowfabric.worker.durable.calls import DurableCalls, step_of
from flowfabric.worker.durable.select import Arm, Selected
from flowfabric.worker.durable.step import DeclaredStep
from flowfabric.worker.durable.step_tx import OpenStep
from flowfabric.worker.durable.steps import StepRun, Wait

if TYPE_CHECKING:
    from flowfabric.worker.context import Ctx

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def _blocking(
    method: Callable[Concatenate[DurableCalls, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncDurableCalls, P], T]:
    """The blocking form of a call, with the same parameters and docstring."""

    @functools.wraps(method)
    def call(self: SyncDurableCalls, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait(method(self._calls(), *args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return call


def _on_thread(
    method: Callable[Concatenate[DurableCalls, P], T],
) -> Callable[Concatenate[SyncDurableCalls, P], T]:
    """A call that does not wait, for the thread of the handler."""

    @functools.wraps(method)
    def call(self: SyncDurableCalls, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self._calls(), *args, **kwargs)  # pyright: ignore[reportPrivateUsage]

    return call


class SyncDurableCalls:
    """Blocking forms of the durable calls; each must be made from the thread of the handler."""

    _ctx: Ctx
    _thread: int | None

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop and wait for its result."""
        raise NotImplementedError

    def _calls(self) -> DurableCalls:
        """The calls of the context, if this is the thread of its handler."""
        if threading.get_ident() != self._thread:
            raise WrongThread
        durable = self._ctx._durable_calls()  # pyright: ignore[reportPrivateUsage]  its own form
        durable.parking.in_thread = True
        return self._ctx

    @overload
    def step(
        self,
        name: str,
        function: Callable[[*Ts], Coroutine[Any, Any, T]],
        /,
        *args: *Ts,
        key: str | None = None,
        retry: Retry | None = None,
        timeout: float | timedelta | None = None,
        raises: tuple[type[BaseException], ...] = (),
        returns: Any = None,
        lazy: bool = False,
    ) -> T: ...
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
    ) -> T: ...
    @overload
    def step(
        self,
        step: DeclaredStep[*Ts, Coroutine[Any, Any, T]],
        /,
        *args: *Ts,
        key: str | None = None,
    ) -> T: ...
    @overload
    def step(self, step: DeclaredStep[*Ts, T], /, *args: *Ts, key: str | None = None) -> T: ...
    def step(  # pyright: ignore[reportInconsistentOverload]  *given stands for any *args
        self, first: Any, /, *given: Any, key: str | None = None, **options: Any
    ) -> Any:
        """As `ctx.step`; a plain function without a timeout runs in this thread."""
        return self._step((first, *given), key, options)

    def _step(self, given: tuple[Any, ...], key: str | None, options: dict[str, Any]) -> Any:
        durable = self._calls()._durable_calls()  # pyright: ignore[reportPrivateUsage]  its own form
        step, args = step_of(given[0], given[1:], options)
        return StepRun(durable, durable.allot(step.name, key), step, args).result_here(self._wait)

    def begin_step(self, name: str, *, key: str | None = None, returns: Any = Any) -> SyncOpenStep:
        opened = self._wait(self._calls().begin_step(name, key=key, returns=returns))
        return SyncOpenStep(opened, self._wait)

    step_tx = _blocking(DurableCalls.step_tx)
    now = _on_thread(DurableCalls.now)
    random = _on_thread(DurableCalls.random)
    uuid = _on_thread(DurableCalls.uuid)
    patched = _on_thread(DurableCalls.patched)
    sleep = _blocking(DurableCalls.sleep)
    sleep_until = _blocking(DurableCalls.sleep_until)
    wait_for_signal = _blocking(DurableCalls.wait_for_signal)
    signal = _blocking(DurableCalls.signal)
    waitpoint = _blocking(DurableCalls.waitpoint)
    wait = _blocking(DurableCalls.wait)
    restart = _blocking(DurableCalls.restart)
    compensate = _blocking(DurableCalls.compensate)
    disarm = _blocking(DurableCalls.disarm)
    gather = _blocking(DurableCalls.gather)
    race = _blocking(DurableCalls.race)
    quorum = _blocking(DurableCalls.quorum)

    def select(self, name: str = "select", /, **arms: Arm | SyncChild[Any]) -> Selected:
        own = {name: arm.child if isinstance(arm, SyncChild) else arm for name, arm in arms.items()}
        return self._wait(self._calls().select(name, **own))

    def spawn(
        self,
        call: ChildCall[T],
        *,
        detached: bool = False,
        name: str | None = None,
        budget: GivenBudgets | OwnBudgets | None = None,
    ) -> SyncChild[T]:
        spawning = self._calls().spawn(call, detached=detached, name=name, budget=budget)
        return SyncChild(self._wait(spawning), self._wait)


class SyncOpenStep:
    """The blocking form of `OpenStep`, for a handler that runs in a thread."""

    def __init__(self, opened: OpenStep, wait: Wait) -> None:
        self._opened, self._wait = opened, wait

    @property
    def done(self) -> bool:
        return self._opened.done

    @property
    def value(self) -> Any:
        return self._opened.value

    def complete(self, value: object = None, *, conn: Any = None) -> Any:
        """Record the value; with `conn` in its transaction, which the caller then commits."""
        return self._wait(self._opened.complete(value, conn=conn))


class SyncChild(Generic[T]):
    """The blocking form of `Child`, for a handler that runs in a thread."""

    def __init__(self, child: Child[T], wait: Callable[[Coroutine[Any, Any, T]], T]) -> None:
        self.child, self._wait = child, wait
        self.execution_id = child.execution_id

    def result(self) -> T:
        """The child's result, once it has ended; raises `ChildFailed` if it did not succeed."""
        return self._wait(self.child.result())
