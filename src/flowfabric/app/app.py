"""The application: its tasks, their shared state, and the workers that run them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, TypeVarTuple, Unpack

from flowfabric.app.batch import Batch, batch_function
from flowfabric.app.check_settings import (
    check_codec,
    check_executor,
    check_kind,
    check_middleware,
    durable_settings,
)
from flowfabric.app.codec import JSON, Codec
from flowfabric.app.depends import Plan
from flowfabric.app.flow import Flow
from flowfabric.app.limit import AppLimit, define_limit, store_limits, task_limit, task_merge
from flowfabric.app.overrides import Override, Overrides
from flowfabric.app.registrar import Registrar
from flowfabric.app.schedule import AppSchedule, F, ScheduleOptions
from flowfabric.app.task import Environment, Middleware, Task
from flowfabric.app.task_policy import task_policy
from flowfabric.app.worker_target import worker_target
from flowfabric.budgets import GivenBudgets
from flowfabric.config import callback_url
from flowfabric.engine.journal.entry import check_entry_name
from flowfabric.engine.schedules.definition import ScheduleDefinition
from flowfabric.errors import ConfigError, ValidationError, invalid_input
from flowfabric.ids import check_lane, check_name, check_type
from flowfabric.limits import Debounce, Rate, Unique
from flowfabric.policy import Retry, capabilities_of, clamp_priority, milliseconds
from flowfabric.worker.create_schedules import create_schedules
from flowfabric.worker.durable.compensator import compensator
from flowfabric.worker.durable.settings import MAX_STEP_BYTES
from flowfabric.worker.durable.step import (
    DeclaredStep,
    StepSettings,
    check_callable,
    check_step_retry,
    check_timeout,
    exception_types,
)
from flowfabric.worker.processes import ProcessPool
from flowfabric.worker.settings import WorkerSettings, listed
from flowfabric.worker.threads import HandlerThreads

if TYPE_CHECKING:
    from flowfabric.remote.engine_like import EngineLike
    from flowfabric.worker.loop import Worker

R = TypeVar("R")
Ts = TypeVarTuple("Ts")
M = TypeVar("M", bound=Middleware)


class App:
    """A set of tasks in one namespace."""

    def __init__(self, namespace: str = "default", *, codec: Codec = JSON) -> None:
        self.namespace = check_name(namespace, field="namespace")
        check_codec(codec)
        self.state = SimpleNamespace()
        """Values that handlers share; they read them as `ctx.state`."""
        self.tasks: dict[str, Task[..., Any]] = {}
        self.schedules: dict[str, AppSchedule] = {}
        self.limits: dict[str, AppLimit] = {}
        self._codec = codec
        self._middleware: list[Middleware] = []
        self._overrides = Overrides()

    def task(
        self,
        kind: str,
        *,
        lane: str = "default",
        retry: Retry | None = None,
        timeout: float | timedelta | None = None,
        deadline: float | timedelta | None = None,
        requires: Collection[str] = (),
        priority: int = 0,
        max_reclaims: int | None = None,
        budget: GivenBudgets | None = None,
        retry_on: Iterable[type[BaseException]] = (),
        no_retry_on: Iterable[type[BaseException]] = (),
        codec: Codec | None = None,
        executor: Literal["thread", "process"] = "thread",
        replay: Literal["strict", "by_name"] = "strict",
        on_divergence: Literal["suspend", "fail"] | None = None,
        version: int = 0,
        raises: Iterable[type[BaseException]] = (),
        max_step_bytes: int = MAX_STEP_BYTES,
        limit: AppLimit | None = None,
        limit_key: Callable[..., str] | str | None = None,
        unique: Unique | None = None,
        debounce: Debounce | None = None,
        batch: Batch | None = None,
    ) -> Registrar:
        """Register a function as the task `kind`.

        A plain function runs in a thread, or with `executor="process"` in a child process, which
        is killed when the lease is lost or the attempt times out. `retry` allows further attempts
        (none by default), `timeout` limits one attempt, `deadline` the whole execution, `requires`
        names capabilities that a worker must offer. `limit` bounds how many executions run at once
        or how fast they start, for each key: `limit_key` is a text, or is called with the arguments
        of the call. With `unique` or `debounce` submits of one key become one execution; their key
        is found in the same way. With `batch` the function is
        `async def f(ctx: BatchCtx, items: list[T])`: it is called for many executions at once, and
        returns a result or a `Fail` for each, or None. Executions are attached to the `budget`, one
        or several: while one is spent, they wait.

        The others are for handlers with durable calls. `replay` says what a handler that makes
        other calls than it has recorded is: with `strict` it diverges, with `by_name` calls are
        found by their names alone. A divergence suspends the execution until an operator resumes
        it, or with `on_divergence="fail"` fails it, which is the default in tests with the pytest
        plugin. `version` is what `ctx.version` answers for executions that begin now. Errors of
        steps of the classes in `raises` come back as themselves. `max_step_bytes` limits each
        recorded value.
        Raises `ConfigError` for a kind that is registered already, a setting that is not valid, or
        a function that cannot be a task.
        """
        try:
            check_kind(kind)
            check_name(kind, field="kind")
            check_lane(lane, field="lane")
            needed = capabilities_of(requires, field="requires", side="required")
            policy = task_policy(retry, timeout, deadline, max_reclaims, budget)
            clamp_priority(priority)
            retryable = exception_types(retry_on, field="retry_on")
            permanent = exception_types(no_retry_on, field="no_retry_on")
            check_executor(executor)
            if codec is not None:
                check_codec(codec)
            durable = durable_settings(
                replay=replay,
                on_divergence=on_divergence,
                version=version,
                raises=raises,
                max_step_bytes=max_step_bytes,
                in_process=executor == "process",
            )
            limited = task_limit(limit, limit_key)
            merged = task_merge(unique, debounce)
            if batch is not None and not isinstance(batch, Batch):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise invalid_input("batch", batch, "must be a Batch: Batch(size=100, wait=0.5)")
        except ValidationError as error:
            raise ConfigError("task", _shown(kind), error.detail) from None
        if kind in self.tasks:
            raise ConfigError("task", kind, "is registered already")

        def register(function: Callable[..., Any]) -> Any:
            if batch is not None:
                function = batch_function(kind, function, batch)
            task: Task[..., Any] = Task(
                function,
                kind=kind,
                lane=lane,
                codec=codec or self._codec,
                middleware=self._middleware,
                state=self.state,
                overrides=self._overrides,
                requires=needed,
                policy=policy,
                priority=priority,
                retry_on=retryable,
                no_retry_on=permanent,
                in_process=executor == "process",
                durable=durable,
                limit=limited,
                merged=merged,
            )
            self.tasks[kind] = task
            return task

        return register

    def limit(
        self, name: str, *, concurrency: int | None = None, rate: Rate | None = None
    ) -> AppLimit:
        """A limit for the executions of each key: how many run at once, how many start in a window.

        `app.limit("per-customer", concurrency=1)`, `app.limit("api", rate=Rate(10, per=60))`, or
        both. Workers and clients store it before its first use; `client.limits.set` and
        `ff limits set` change it later. Raises `ConfigError` for a name that is taken, and for
        numbers that are not valid.
        """
        made = define_limit(name, namespace=self.namespace, concurrency=concurrency, rate=rate)
        if name in self.limits:
            raise ConfigError("limit", name, "is defined already")
        self.limits[name] = made
        return made

    def step(
        self,
        name: str,
        *,
        retry: Retry | None = None,
        timeout: float | timedelta | None = None,
        raises: Iterable[type[BaseException]] = (),
        returns: Any = None,
        lazy: bool = False,
    ) -> Callable[[Callable[[*Ts], R]], DeclaredStep[*Ts, R]]:
        """Declare a function as a step with its settings: `await ctx.step(charge, order_id)`.

        Raises `ConfigError` for a name or a setting that is not valid.
        """
        try:
            check_entry_name(name)
            settings: dict[str, Any] = {
                "retry": check_step_retry(retry),
                "timeout": check_timeout(timeout),
                "raises": exception_types(raises, field="raises"),
                "lazy": check_type(lazy, bool, field="lazy"),
            }
        except ValidationError as error:
            raise ConfigError("step", _shown(name), error.detail) from None

        def declare(function: Callable[[*Ts], R]) -> DeclaredStep[*Ts, R]:
            check_callable(name, function)
            step = StepSettings(name=name, function=function, returns=returns, **settings)
            return DeclaredStep(step)

        return declare

    def schedule(self, name: str, **options: Unpack[ScheduleOptions]) -> Callable[[F], F]:
        """Execute the call that the function returns at every instant that the options give.

        `@app.schedule("nightly", cron="0 2 * * *", tz="Europe/Berlin")`. A worker that starts
        creates the schedule if it is missing; `ff schedules sync` applies changes. The function is
        called then, and what it returns is stored. Raises `ConfigError` for a name that is taken,
        and for an option that is not valid.
        """

        def register(function: F) -> F:
            schedule = AppSchedule(name, function, namespace=self.namespace, options=options)
            if name in self.schedules:
                raise ConfigError("schedule", name, "is defined already")
            self.schedules[name] = schedule
            return function

        return register

    def schedule_definitions(self) -> list[ScheduleDefinition]:
        """The schedules as they are stored; calls their functions. Raises `ConfigError`."""
        return [each.definition() for each in self.schedules.values()]

    def flow(
        self,
        kind: str,
        *,
        tags: Mapping[str, str] | None = None,
        budget: GivenBudgets | None = None,
    ) -> Flow:
        """An empty graph to add calls to; `client.start(flow)` runs it.

        Its members are attached to the `budget`, one or several, besides those of their tasks.
        """
        return Flow(kind, tags=tags, budget=budget)

    def middleware(self, function: M) -> M:
        """Wrap every task of the app: `async def m(ctx, call_next): return await call_next()`.

        Raises `ConfigError` for a function that cannot be called so.
        """
        check_middleware(function)
        self._middleware.append(function)
        return function

    def override(self, dependency: Callable[..., Any], fake: Callable[..., Any]) -> Override:
        """While the block is open, handlers get what `fake` makes instead of `dependency`.

        For tests: `with app.override(bank, fake_bank): ...`. The fake is a factory like any
        other. It counts for the workers of this app in this process, wherever `Depends(bank)`
        stands, from the next attempt on; the override that was opened last wins. A task with
        `executor="process"` runs in a thread of the worker meanwhile. Raises `ConfigError` if no
        task depends on `dependency`, or if nothing provides a parameter of the fake.
        """
        name = getattr(dependency, "__qualname__", repr(dependency))
        plans = [task.plan for task in self.tasks.values()]
        plans += [override.plan for override in self._overrides.open]
        if not any(plan.uses(dependency) for plan in plans):
            raise ConfigError("override", name, "no task of this app depends on this factory")
        plan = Plan(fake, owner=f"override of {name!r}", overrides=self._overrides)
        plan.refuse_unknown(fake)
        return Override(dependency, fake, plan, self._overrides)

    def worker(
        self,
        *,
        dsn: str | None = None,
        url: str | None = None,
        token: str | None = None,
        ca: str | None = None,
        direct_dsn: str | None = None,
        lanes: Iterable[str] | None = None,
        capabilities: Iterable[str] = (),
        concurrency: int = 64,
        sync_workers: int = 32,
        max_stuck_threads: int | None = None,
        transactions: int = 4,
        lease_ttl: float | timedelta = 30.0,
        drain: float | timedelta = 30.0,
        worker_id: str | None = None,
        worker_instance_id: str = "",
        on_lease_lost: Literal["cancel", "ignore"] = "cancel",
        lease_history: Literal["brief", "full"] = "brief",
        reconcile: bool = True,
        pooler: bool | None = None,
        listen: bool = True,
    ) -> Worker:
        """A worker for this app's tasks, on the lanes they name unless `lanes` says otherwise.

        The database is `dsn`, else `FF_DATABASE_URL`. With `url`, else `FF_SERVER_URL`, the worker
        lives on HTTP alone: it calls that server with `token`, else `FF_TOKEN`. `pooler`, else
        `FF_DATABASE_POOLER`, says whether the database is behind a pooler in transaction mode; then
        `direct_dsn`, else `FF_DIRECT_URL`, leads past it. Raises `ConfigError` for a setting that
        is not valid.
        """
        settings = WorkerSettings(
            lanes=self.lanes if lanes is None else listed("lanes", lanes),
            namespace=self.namespace,
            worker_id=worker_id or f"{self.namespace}-worker",
            worker_instance_id=worker_instance_id,
            capabilities=listed("capabilities", capabilities),
            concurrency=concurrency,
            sync_workers=sync_workers,
            max_stuck_threads=max_stuck_threads,
            transactions=transactions,
            lease_ttl=_seconds("lease_ttl", lease_ttl),
            drain=_seconds("drain", drain),
            on_lease_lost=on_lease_lost,
            lease_history=lease_history,
            reconcile=reconcile,
        )
        callback_url()  # refuses an address that is none before a handler asks for it
        from flowfabric.worker.loop import Worker  # with the sweeps: only workers need them

        threads = HandlerThreads(sync_workers, most_stuck=max_stuck_threads)
        environment = Environment(threads=threads, processes=ProcessPool())
        handlers = {kind: task.handler(environment) for kind, task in self.tasks.items()}
        return Worker(
            handlers,
            database=worker_target(
                dsn, url, direct_dsn=direct_dsn, pooler=pooler, listen=listen, token=token, ca=ca
            ),
            settings=settings,
            state=self.state,
            threads=threads,
            on_close=environment.close,
            on_start=self._store_definitions,
            built_in=[compensator()],
        )

    async def _store_definitions(self, engine: EngineLike, instance: str) -> None:
        definitions, actor = self.schedule_definitions(), f"worker {instance}"
        await store_limits(engine, self.limits.values(), actor=actor)
        await create_schedules(engine, definitions, namespace=self.namespace, actor=actor)

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes of this app's tasks."""
        return tuple(sorted({task.lane for task in self.tasks.values()})) or ("default",)


def _seconds(setting: str, duration: float | timedelta) -> float:
    try:
        return milliseconds(duration, field=setting) / 1000
    except ValidationError as error:
        raise ConfigError("worker", setting, error.detail) from None


def _shown(kind: object) -> str:
    """The kind as an error names it; "kind" if it is none."""
    return kind if isinstance(kind, str) and kind else "kind"
