"""The client: submits calls, returns handles, reads and controls executions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from uuid import UUID

from flowfabric.app.check_call import check_calls
from flowfabric.app.flow import Flow
from flowfabric.app.task import Call
from flowfabric.budgets import GivenBudgets
from flowfabric.client.admin import Admin
from flowfabric.client.budgets import Budgets
from flowfabric.client.create_in_chunks import CHUNK, create_in_chunks
from flowfabric.client.enqueue import enqueue, enqueue_flow
from flowfabric.client.flow_handle import FlowHandle
from flowfabric.client.flow_waiter import flow_waiter
from flowfabric.client.handle import Handle, new_handle, new_handles
from flowfabric.client.identity import user_at_host
from flowfabric.client.limits import Limits, Quotas
from flowfabric.client.new_executions import new_executions
from flowfabric.client.open_engine import Connecting, open_engine
from flowfabric.client.options import Options, each_option, of_call, options_in_order, options_of
from flowfabric.client.outcome_waiter import OutcomeWaiter
from flowfabric.client.schedules import Schedules
from flowfabric.client.searches import Searches
from flowfabric.client.signals import SignalSender
from flowfabric.client.submit_alone import submit_alone
from flowfabric.client.submits import PlainSubmit, Submits, executions_of
from flowfabric.client.unserved_warning import UnservedWarning
from flowfabric.db.batcher import Batcher
from flowfabric.engine.lifecycle.alike_batch import ids_of
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId, as_uuid, check_name, check_type
from flowfabric.limits import Debounce, Unique
from flowfabric.tokens import WaitpointToken
from flowfabric.wire import read_untyped

if TYPE_CHECKING:
    from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
    from flowfabric.engine.executions.explanation import Explanation
    from flowfabric.engine.flows.new_flow import NewFlow
    from flowfabric.engine.flows.submission import FlowSubmitted
    from flowfabric.engine.journal.rewind_journal import ReplayFrom
    from flowfabric.engine.lifecycle.create_execution import NewExecution, OnConflict
    from flowfabric.engine.operators.replay_flow import ReplayedFlow
    from flowfabric.engine.suspensions.send_signal import SignalAnswer
    from flowfabric.remote.engine_like import EngineLike

R = TypeVar("R")

_MEMBERS_PER_STATEMENT: Final = 2000  # unless a single flow has more
_MIN_FLOW_WEIGHT: Final = 20  # so that one statement starts a hundred small flows at most


class Client(Searches):
    """Connected to one database, for one namespace. Coroutines may share a client."""

    def __init__(self, engine: EngineLike, *, namespace: str = "default") -> None:
        self.engine = engine
        self.namespace = check_name(namespace, field="namespace")
        self.identity = user_at_host()
        self._submits = Submits(engine)
        self._starts = Batcher(
            engine.submit_flows,
            max_weight=_MEMBERS_PER_STATEMENT,
            weight=lambda flow: max(_MIN_FLOW_WEIGHT, len(flow.members)),
        )
        self.signals = SignalSender(engine)
        self.unserved = UnservedWarning(engine, namespace)
        self.outcomes = OutcomeWaiter(engine, engine.read_outcomes)
        self.settled_flows = flow_waiter(engine)
        self.admin = Admin(self, self.identity)
        self.schedules = Schedules(self)
        self.budgets = Budgets(self)
        self.limits = Limits(self)
        self.quotas = Quotas(self)

    @classmethod
    async def connect(
        cls,
        dsn: str | None = None,
        *,
        namespace: str = "default",
        pool_size: int = 4,
        pooler: bool | None = None,
        listen: bool = True,
        token: str | None = None,
        ca: str | None = None,
    ) -> Self:
        """Connect to `dsn`, else to `FF_DATABASE_URL`, else to the server at `FF_SERVER_URL`.

        A `dsn` that begins with `http` is a server, called with `token`, else `FF_TOKEN`; `ca` is a
        file of certificates. `pooler=True` is for a pooler in transaction mode; None: as
        `FF_DATABASE_POOLER`. Raises `ConfigError`, `TransportError`, `ApiError` for a token that is
        not known, and `Unavailable` if the schema is of another version.
        """
        check_name(namespace, field="namespace")
        options = Connecting(pool_size=pool_size, pooler=pooler, listen=listen)
        return cls(await open_engine(dsn, options, token=token, ca=ca), namespace=namespace)

    async def close(self) -> None:
        await self.unserved.close()
        await self.outcomes.close()
        await self.settled_flows.close()
        await self.engine.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def submit(
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
        """Submit one call; when this returns, the execution is stored.

        With `conn` (psycopg 3, asyncpg or SQLAlchemy) the execution is created in the transaction
        of that connection, and exists when the caller commits. The same `idempotency_key` within
        its window (24 hours) gives the execution of the first submit. If that has another kind or
        payload, `IdempotencyConflict` is raised, unless `on_conflict` is `"return"`. `limit_key` is
        the key that the limit of the task counts the execution under. With `unique` one execution
        of its key exists at a time; with `debounce` calls that follow soon become one execution.
        """
        options = options_in_order(
            idempotency_key,
            idempotency_window,
            on_conflict,
            priority,
            delay,
            delay_until,
            deadline,
            deadline_at,
            tags,
            lane,
            budget,
            limit_key,
            unique,
            debounce,
        )
        options = of_call(options, call)
        new = self._submits.new(call, options, namespace=self.namespace, creator=self.identity)
        if call.task.limit is not None:
            await self.limits.store([call])
        if conn is None and not options.is_alone:
            answer = await self._submits.request(new)
        else:
            executions = executions_of([new], partitions=self.engine.partitions)
            if options.is_alone:
                [answer] = await submit_alone(self.engine, executions, [options], conn)
            else:
                [answer] = await enqueue(conn, executions, engine=self.engine)
        if isinstance(new, PlainSubmit):
            example, own_id = new.pattern.example, None
        else:
            example, own_id = new, new.execution_id
        self.unserved.note([example])
        return new_handle(self, call, own_id, answer, committed=conn is None)

    async def submit_many(
        self,
        calls: Sequence[Call[R]],
        *,
        idempotency_keys: Sequence[str | None] | None = None,
        conn: Any = None,
        **options: Any,
    ) -> list[Handle[R]]:
        """Submit many calls in one transaction, all or none; handles in the order given.

        The options of `submit` apply to each call, and `idempotency_keys` has one key for each. If
        the execution of a key has another kind or payload, `IdempotencyConflict` is raised and
        nothing is submitted, unless `on_conflict` is `"return"`.
        """
        calls = check_calls(calls)
        return await self.submit_with_options(
            calls, each_option(calls, options_of(options), idempotency_keys), conn=conn
        )

    async def submit_with_options(
        self, calls: Sequence[Call[R]], options: Sequence[Options], *, conn: Any = None
    ) -> list[Handle[R]]:
        """`submit_many` with the options of each call as one value."""
        if not calls:
            return []
        await self.limits.store(calls)
        made: list[Sequence[NewExecution]] = []

        def chunks() -> Iterator[Sequence[NewExecution]]:
            for number, start in enumerate(range(0, len(calls), CHUNK)):
                if number == len(made):
                    home = made[0][0].execution_id.partition_key if made else None
                    chunk = slice(start, start + CHUNK)
                    made.append(self.executions_of(calls[chunk], options[chunk], home))
                yield made[number]

        is_alone = any(each.is_alone for each in options)
        if is_alone or conn is not None:
            executions = self.executions_of(calls, options)
            made.append(executions)
            if is_alone:
                answers = await submit_alone(self.engine, executions, options, conn)
            else:
                answers = await enqueue(conn, executions, engine=self.engine)
        else:
            small = len(calls) <= CHUNK and not any(each.has_key for each in options)
            answers = await create_in_chunks(self.engine, chunks, in_one_statement=small)
        own_ids: list[ExecutionId] = []
        for chunk in made:
            self.unserved.note(chunk)
            own_ids += ids_of(chunk)
        return new_handles(self, calls, own_ids, answers, committed=is_alone or conn is None)

    async def start(
        self,
        flow: Flow,
        *,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "error",
        conn: Any = None,
    ) -> FlowHandle:
        """Start a flow: all its members and edges exist when this returns, or none.

        With `conn` (psycopg 3, asyncpg or SQLAlchemy) the flow is created in the transaction of
        that connection, and starts when the caller commits. The same `idempotency_key` gives the
        flow of the first start. If that has another kind or other members, `IdempotencyConflict` is
        raised, unless `on_conflict` is `"return"`. Without a key, a `Flow` starts once: raises
        `FlowAlreadyStarted` for a second start. A start that raised another error may be repeated,
        and never makes a second flow.
        """
        built = self.flow_of(flow, idempotency_key, on_conflict)
        await self.limits.store([member.call for member in flow.members.values()])
        if conn is not None:
            answer = await enqueue_flow(conn, built, engine=self.engine)
        elif idempotency_key is not None:
            answer = await self._starts.request(built)
        else:
            with flow.once.starting():
                answer = await self._starts.request(built)
        self.unserved.note(built.members)
        return self.flow_handle(flow, answer, idempotency_key, in_transaction=conn is not None)

    def flow_handle(
        self, flow: Flow, answer: FlowSubmitted, key: str | None, *, in_transaction: bool
    ) -> FlowHandle:
        """A handle on the flow that was created, or found by its key."""
        if key is None:
            flow.once.check_answer(answer, in_transaction=in_transaction)
        created = key is None or not answer.repeated  # without a key the id was made here
        return FlowHandle(self, answer.flow_id, created=created, drawn=flow.members)

    def flow_of(
        self, flow: Flow, idempotency_key: str | None, on_conflict: OnConflict = "error"
    ) -> NewFlow:
        """The flow as the engine creates it; raises `ValidationError`, `FlowAlreadyStarted`."""
        if idempotency_key is None:
            flow.once.check()
        return flow.build(
            namespace=self.namespace,
            creator=self.identity,
            partitions=self.engine.partitions,
            key=idempotency_key,
            on_conflict=on_conflict,
        )

    def flow(self, flow_id: UUID | str, drawn: Flow | None = None) -> FlowHandle:
        """A handle on a flow that was started before, by any client.

        With `drawn`, the flow drawn again, its results have the types that its tasks return.
        """
        wanted = as_uuid(flow_id, field="flow_id")
        return FlowHandle(self, wanted, created=False, drawn=drawn and drawn.members)

    def handle(self, execution_id: ExecutionId | str) -> Handle[Any]:
        """A handle on an execution that was submitted before, by any client."""
        wanted = self.parse(execution_id)
        return Handle(self, wanted, created=False, known_to_exist=False, read_result=read_untyped)

    def parse(self, execution_id: ExecutionId | str) -> ExecutionId:
        """The id, parsed if it is text; raises `ValidationError`."""
        if isinstance(execution_id, str):
            return ExecutionId.parse(execution_id, partitions=self.engine.partitions)
        return check_type(execution_id, ExecutionId, field="execution_id")

    async def describe(
        self, execution_id: ExecutionId | str, *, with_body: bool = False
    ) -> ExecutionSnapshot:
        """An execution with its state, attempt, lease and times; raises `NotFound`.

        With `with_body` also its stored payload, result, and traceback of the last attempt.
        """
        return await self.handle(execution_id).describe(with_body=with_body)

    async def explain(self, execution_id: ExecutionId | str) -> Explanation:
        """Why an execution does not run, and what would change that; raises `NotFound`."""
        return await self.handle(execution_id).explain()

    async def cancel(self, execution_id: ExecutionId | str, reason: str) -> None:
        """End an execution without a result."""
        await self.handle(execution_id).cancel(reason)

    async def replay(
        self,
        execution_id: ExecutionId | str,
        reason: str | None = None,
        *,
        from_: ReplayFrom = "failure",
        from_step: str | None = None,
        downstream: bool = True,
    ) -> None:
        """Run an ended execution again; as `Handle.replay`."""
        await self.handle(execution_id).replay(
            reason, from_=from_, from_step=from_step, downstream=downstream
        )

    async def signal(
        self,
        execution_id: ExecutionId | str,
        waitpoint_id: UUID | str,
        *,
        token: WaitpointToken | str,
        name: str,
        source: tuple[str, str] = ("external", ""),
        payload: object = None,
        idempotency_key: str | None = None,
    ) -> SignalAnswer:
        """Signal a waitpoint in the name of an outsider, which has given its `token`.

        `source` is the type of the outsider and who it is, such as `("user", "ann")`. The answer is
        `resumed` if the execution goes on by this signal, and `duplicate` if the same key has
        signalled the waitpoint before. Raises `InvalidToken`, `TargetNotSignalable`,
        `WaitpointClosed`, `NotFound` and `ValidationError`.
        """
        return await self.signals.deliver(
            self.parse(execution_id),
            as_uuid(waitpoint_id, field="waitpoint_id"),
            token,
            name,
            payload,
            source=source,
            idempotency_key=idempotency_key,
        )

    async def signal_key(
        self, key: str, name: str, payload: object = None, *, idempotency_key: str | None = None
    ) -> SignalAnswer:
        """Send a signal to the execution that was submitted with the idempotency key `key`.

        As `Handle.signal`, whose key `idempotency_key` is. Raises `NotFound` too for the execution.
        """
        found = await self.engine.locate_execution_by_key(self.namespace, key)
        if found is None:
            raise NotFound("execution", f"with idempotency key {key!r}")
        return await self.handle(found).signal(name, payload, idempotency_key=idempotency_key)

    async def replay_flow(
        self, flow_id: UUID | str, reason: str | None = None, *, preview: bool = False
    ) -> ReplayedFlow:
        """Run again what keeps a flow from being completed; as `FlowHandle.replay`."""
        return await self.flow(flow_id).replay(reason, preview=preview)

    def executions_of(
        self, calls: Sequence[Call[Any]], options: Sequence[Options], home: int | None = None
    ) -> Sequence[NewExecution]:
        """The executions to create for these calls; raises `ValidationError`."""
        names = {"namespace": self.namespace, "creator": self.identity}
        partitions = self.engine.partitions
        return new_executions(calls, options, **names, partitions=partitions, home=home)
