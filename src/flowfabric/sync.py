"""The blocking client, for scripts and sync frameworks: runs the async one in a thread."""

from __future__ import annotations

import functools
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Generator,
    Mapping,
    Sequence,
)
from datetime import datetime, timedelta
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload
from uuid import UUID

from flowfabric.app.check_call import check_calls
from flowfabric.app.flow import Flow
from flowfabric.app.member import Member
from flowfabric.app.task import Call
from flowfabric.budgets import GivenBudgets
from flowfabric.client.admin import Admin as AsyncAdmin
from flowfabric.client.budgets import Budgets as AsyncBudgets
from flowfabric.client.client import Client as AsyncClient
from flowfabric.client.enqueue import enqueue_blocking, enqueue_flow_blocking
from flowfabric.client.flow_handle import FlowHandle as AsyncFlowHandle
from flowfabric.client.handle import Handle as AsyncHandle
from flowfabric.client.handle import new_handles
from flowfabric.client.limits import Limits as AsyncLimits
from flowfabric.client.limits import Quotas as AsyncQuotas
from flowfabric.client.options import Options, each_option, of_call, options_of
from flowfabric.client.schedules import Schedules as AsyncSchedules
from flowfabric.engine.lifecycle.alike_batch import ids_of
from flowfabric.engine.lifecycle.create_execution import OnConflict
from flowfabric.engine.streams.frame import Frame
from flowfabric.ids import ExecutionId
from flowfabric.limits import Debounce, Unique
from flowfabric.loop_thread import LoopThread
from flowfabric.states import FrameVisibility, PublicState

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class _Blocking(Generic[A]):
    """Wraps an async object; its coroutines run on `loop`."""

    def __init__(self, loop: LoopThread, wrapped: A) -> None:
        self._loop, self._wrapped = loop, wrapped

    def __repr__(self) -> str:
        return repr(self._wrapped)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.wait(work)

    def _call(
        self,
        method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return self._wait(method(self._wrapped, *args, **kwargs))


def _blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Blocking[A], P], T]:
    """The blocking form of an async method, with the same parameters and docstring."""

    @functools.wraps(method)
    def call(self: _Blocking[A], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(method, *args, **kwargs)  # pyright: ignore[reportPrivateUsage]  its own class

    return call


class Handle(_Blocking[AsyncHandle[R]]):
    """One execution: wait for its result, describe it, cancel it, replay it."""

    def __init__(self, loop: LoopThread, handle: AsyncHandle[R]) -> None:
        super().__init__(loop, handle)
        self.execution_id = handle.execution_id
        self.created = handle.created
        """False when the idempotency key matched an earlier submit."""

    def result(self, timeout: float | timedelta | None = None) -> R:
        """The result, once the execution has ended; raises as `flowfabric.Handle.result`."""
        return self._wait(self._wrapped.result(timeout))

    @overload
    def state(self) -> PublicState: ...
    @overload
    def state(self, *, type: type[T]) -> T | None: ...
    def state(self, *, type: Any = None) -> Any:  # noqa: A002  as in `flowfabric.Handle.state`
        """The state of the execution; with `type` the state that its handler keeps."""
        return self._wait(self._wrapped.state(type=type))

    def stream(
        self,
        *,
        attempt: int | None = None,
        after: str | None = None,
        visibility: FrameVisibility = FrameVisibility.ALL,
        follow: bool = True,
    ) -> Generator[Frame]:
        """The frames that the handler emits, until the execution has ended; see `Handle.stream`."""
        frames = self._wrapped.stream(
            attempt=attempt, after=after, visibility=visibility, follow=follow
        )
        try:
            while (frame := self._wait(_next_of(frames))) is not None:
                yield frame
        finally:
            self._wait(_closed(frames))

    describe = _blocking(AsyncHandle[Any].describe)
    attempts = _blocking(AsyncHandle[Any].attempts)
    cancel = _blocking(AsyncHandle[Any].cancel)
    replay = _blocking(AsyncHandle[Any].replay)
    signal = _blocking(AsyncHandle[Any].signal)
    steps = _blocking(AsyncHandle[Any].steps)
    explain = _blocking(AsyncHandle[Any].explain)
    history = _blocking(AsyncHandle[Any].history)
    set_tag = _blocking(AsyncHandle[Any].set_tag)

    def compensation(self) -> Handle[Any] | None:
        """The execution that undoes what this one did before it ended without success."""
        found = self._wait(self._wrapped.compensation())
        return None if found is None else Handle(self._loop, found)


async def _next_of(frames: AsyncGenerator[Frame]) -> Frame | None:
    return await anext(frames, None)


async def _closed(frames: AsyncGenerator[Frame]) -> None:

    await frames.aclose()


class FlowHandle(_Blocking[AsyncFlowHandle]):
    """One flow: wait for its results, describe it, cancel it, replay it."""

    def __init__(self, loop: LoopThread, handle: AsyncFlowHandle) -> None:
        super().__init__(loop, handle)
        self.flow_id = handle.flow_id
        self.created = handle.created
        """False when the idempotency key matched a flow that was started before."""

    result = _blocking(AsyncFlowHandle.result)
    describe = _blocking(AsyncFlowHandle.describe)
    state = _blocking(AsyncFlowHandle.state)
    members = _blocking(AsyncFlowHandle.members)
    cancel = _blocking(AsyncFlowHandle.cancel)
    replay = _blocking(AsyncFlowHandle.replay)

    @overload
    def member(self, member: Member[R]) -> Handle[R]: ...
    @overload
    def member(self, member: str) -> Handle[Any]: ...
    def member(self, member: Member[Any] | str) -> Handle[Any]:
        """A handle on this member, or on the member of this name; raises `NotFound`."""
        return Handle(self._loop, self._wait(self._wrapped.member(member)))


class Admin(_Blocking[AsyncAdmin]):
    """Operator controls of one client; `actor` is recorded with every change."""

    @property
    def actor(self) -> str:
        return self._wrapped.actor

    @actor.setter
    def actor(self, actor: str) -> None:
        self._wrapped.actor = actor

    revoke_lease = _blocking(AsyncAdmin.revoke_lease)
    complete = _blocking(AsyncAdmin.complete)
    fail = _blocking(AsyncAdmin.fail)
    delay = _blocking(AsyncAdmin.delay)
    set_priority = _blocking(AsyncAdmin.set_priority)
    resume = _blocking(AsyncAdmin.resume)
    wake = _blocking(AsyncAdmin.wake)
    waitpoints = _blocking(AsyncAdmin.waitpoints)
    waitpoint_token = _blocking(AsyncAdmin.waitpoint_token)
    approve = _blocking(AsyncAdmin.approve)
    deny = _blocking(AsyncAdmin.deny)
    close_waitpoint = _blocking(AsyncAdmin.close_waitpoint)
    lanes = _blocking(AsyncAdmin.lanes)
    pause_lane = _blocking(AsyncAdmin.pause_lane)
    resume_lane = _blocking(AsyncAdmin.resume_lane)
    drain_lane = _blocking(AsyncAdmin.drain_lane)
    disable_lane = _blocking(AsyncAdmin.disable_lane)
    keep = _blocking(AsyncAdmin.keep)
    trim = _blocking(AsyncAdmin.trim)
    list_workers = _blocking(AsyncAdmin.list_workers)
    expired_leases = _blocking(AsyncAdmin.expired_leases)
    rotate_secret = _blocking(AsyncAdmin.rotate_secret)


class Schedules(_Blocking[AsyncSchedules]):
    """The schedules of one client's namespace; each change is recorded with the client's actor."""

    create = _blocking(AsyncSchedules.create)
    update = _blocking(AsyncSchedules.update)
    pause = _blocking(AsyncSchedules.pause)
    resume = _blocking(AsyncSchedules.resume)
    trigger = _blocking(AsyncSchedules.trigger)
    backfill = _blocking(AsyncSchedules.backfill)
    delete = _blocking(AsyncSchedules.delete)
    get = _blocking(AsyncSchedules.get)
    list = _blocking(AsyncSchedules.list)
    history = _blocking(AsyncSchedules.history)
    preview = _blocking(AsyncSchedules.preview)
    explain = _blocking(AsyncSchedules.explain)
    diff = _blocking(AsyncSchedules.diff)
    sync = _blocking(AsyncSchedules.sync)


class Budgets(_Blocking[AsyncBudgets]):
    """Budgets, each named by its id or by a name that stands for one."""

    create = _blocking(AsyncBudgets.create)
    limits = _blocking(AsyncBudgets.limits)
    report = _blocking(AsyncBudgets.report)
    spend = _blocking(AsyncBudgets.spend)
    release = _blocking(AsyncBudgets.release)
    reset = _blocking(AsyncBudgets.reset)
    status = _blocking(AsyncBudgets.status)
    list = _blocking(AsyncBudgets.list)


class Limits(_Blocking[AsyncLimits]):
    """The limits of one client's namespace, by name."""

    set = _blocking(AsyncLimits.set)
    get = _blocking(AsyncLimits.get)
    list = _blocking(AsyncLimits.list)
    keys = _blocking(AsyncLimits.keys)
    delete = _blocking(AsyncLimits.delete)


class Quotas(_Blocking[AsyncQuotas]):
    """Limits by id, and admission by hand."""

    create = _blocking(AsyncQuotas.create)
    limits = _blocking(AsyncQuotas.limits)
    admit = _blocking(AsyncQuotas.admit)
    release = _blocking(AsyncQuotas.release)


class Client(_Blocking[AsyncClient]):
    """The blocking form of `flowfabric.Client`. Threads may share a client."""

    def __init__(self, loop: LoopThread, client: AsyncClient) -> None:
        super().__init__(loop, client)
        self.admin = Admin(loop, client.admin)
        self.schedules = Schedules(loop, client.schedules)
        self.budgets = Budgets(loop, client.budgets)
        self.limits = Limits(loop, client.limits)
        self.quotas = Quotas(loop, client.quotas)

    @classmethod
    def connect(cls, dsn: str | None = None, **options: Any) -> Self:
        """Connect to `dsn`, else to `FF_DATABASE_URL`; options as for `flowfabric.Client`."""
        loop = LoopThread("flowfabric sync client")
        try:
            return cls(loop, loop.wait(AsyncClient.connect(dsn, **options)))
        except BaseException:
            loop.close()
            raise

    def close(self) -> None:
        """Close the connections and end the background thread."""
        self._wait(self._wrapped.close())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(
        self,
        call: Call[R],
        *,
        idempotency_key: str | None = None,
        idempotency_window: float | timedelta | None = None,
        on_conflict: OnConflict = "error",
        priority: int | None = None,
        delay: float | timedelta | None = None,
        delay_until: datetime | None = None,
        deadline: float | timedelta | None = None,
        deadline_at: datetime | None = None,
        tags: Mapping[str, str] | None = None,
        lane: str | None = None,
        budget: GivenBudgets | None = None,
        limit_key: str | None = None,
        unique: Unique | None = None,
        debounce: Debounce | None = None,
        conn: Any = None,
    ) -> Handle[R]:
        """Submit one call; with `conn`, a blocking connection, in its transaction."""
        options = Options(
            idempotency_key=idempotency_key,
            idempotency_window=idempotency_window,
            on_conflict=on_conflict,
            priority=priority,
            delay=delay,
            delay_until=delay_until,
            deadline=deadline,
            deadline_at=deadline_at,
            tags=tags or {},
            lane=lane,
            budget=budget,
            limit_key=limit_key,
            unique=unique,
            debounce=debounce,
        )
        [handle] = self._submit([call], [of_call(options, call)], conn)
        return handle

    def submit_many(
        self,
        calls: Sequence[Call[R]],
        *,
        idempotency_keys: Sequence[str | None] | None = None,
        conn: Any = None,
        **options: Any,
    ) -> list[Handle[R]]:
        """Submit many calls in one transaction, all or none."""
        calls = check_calls(calls)
        return self._submit(calls, each_option(calls, options_of(options), idempotency_keys), conn)

    def start(
        self,
        flow: Flow,
        *,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "error",
        conn: Any = None,
    ) -> FlowHandle:
        """Start a flow; with `conn`, a blocking connection, in its transaction."""
        client = self._wrapped
        if conn is None:
            started = self._wait(
                client.start(flow, idempotency_key=idempotency_key, on_conflict=on_conflict)
            )
        else:
            built = client.flow_of(flow, idempotency_key, on_conflict)
            self._wait(client.limits.store([each.call for each in flow.members.values()]))
            answer = enqueue_flow_blocking(conn, built, engine=client.engine)
            self._loop.call(client.unserved.note, built.members)
            started = client.flow_handle(flow, answer, idempotency_key, in_transaction=True)
        return FlowHandle(self._loop, started)

    def flow(self, flow_id: UUID | str, drawn: Flow | None = None) -> FlowHandle:
        """A handle on a flow that was started before, by any client."""
        return FlowHandle(self._loop, self._wrapped.flow(flow_id, drawn))

    def handle(self, execution_id: ExecutionId | str) -> Handle[Any]:
        """A handle on an execution that was submitted before, by any client."""
        return Handle(self._loop, self._wrapped.handle(execution_id))

    describe = _blocking(AsyncClient.describe)
    cancel = _blocking(AsyncClient.cancel)
    explain = _blocking(AsyncClient.explain)
    replay = _blocking(AsyncClient.replay)
    replay_flow = _blocking(AsyncClient.replay_flow)
    signal = _blocking(AsyncClient.signal)
    signal_key = _blocking(AsyncClient.signal_key)
    search = _blocking(AsyncClient.search)

    def _submit(
        self, calls: Sequence[Call[R]], options: Sequence[Options], conn: Any
    ) -> list[Handle[R]]:
        client = self._wrapped
        if conn is None or any(each.is_alone for each in options):
            handles = self._wait(client.submit_with_options(calls, options, conn=conn))
        else:
            self._wait(client.limits.store(calls))
            executions = client.executions_of(calls, options)
            answers = enqueue_blocking(conn, executions, engine=client.engine)
            self._loop.call(client.unserved.note, executions)
            handles = new_handles(client, calls, ids_of(executions), answers, committed=False)
        return [Handle(self._loop, handle) for handle in handles]
