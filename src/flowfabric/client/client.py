"""The client: submit calls, get handles, look at executions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar
from uuid import UUID

import msgspec

from flowfabric.app.flow import Flow
from flowfabric.app.task import Call
from flowfabric.client.admin import Admin
from flowfabric.client.batching import BATCH, CHUNK, FLOW, MEMBERS, Batcher, create_together
from flowfabric.client.enqueue import enqueue, enqueue_flow
from flowfabric.client.flow_handle import FlowHandle
from flowfabric.client.handle import Handle
from flowfabric.client.identity import who
from flowfabric.client.waiting import Waits
from flowfabric.config import DatabaseConfig, require_database_url
from flowfabric.db.transaction import repeated
from flowfabric.engine.engine import Engine
from flowfabric.engine.events.completion_events import CompletionEvent
from flowfabric.engine.events.cursor import FROM_NOW
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.lease_events import LeaseEvent
from flowfabric.engine.events.operator_events import OperatorEvent
from flowfabric.engine.events.subscribe import Subscription
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.engine.executions.explanation import Explanation
from flowfabric.engine.executions.search_executions import Search, SearchPage
from flowfabric.engine.flows.new_flow import NewFlow
from flowfabric.engine.lifecycle.create_execution import Created, Duplicate, NewExecution
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, parse_uuid
from flowfabric.states import PublicState
from flowfabric.wire import read_untyped

R = TypeVar("R")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a submit may say beside the call; None leaves it to the task."""

    idempotency_key: str | None = None
    priority: int | None = None
    delay: float | timedelta | None = None
    delay_until: datetime | None = None
    deadline: float | timedelta | None = None
    deadline_at: datetime | None = None
    tags: Mapping[str, str] = {}
    lane: str | None = None


class Client:
    """Connected to one database, for one namespace. Many coroutines may share it."""

    def __init__(self, engine: Engine, *, namespace: str = "default") -> None:
        self.engine = engine
        self.namespace = namespace
        self.identity = who()
        self._submits = Batcher(engine.create_execution, at_most=BATCH)
        self._starts = Batcher(
            engine.submit_flows,
            at_most=MEMBERS,
            weight=lambda flow: max(FLOW, len(flow.members)),
        )
        self.waits = Waits(engine, engine.listener)
        self.admin = Admin(self, self.identity)

    @classmethod
    async def connect(
        cls,
        dsn: str | None = None,
        *,
        namespace: str = "default",
        pool_size: int = 4,
        pooler: bool = False,
        listen: bool = True,
    ) -> Self:
        """Connect to `dsn`, else to `FF_DATABASE_URL`.

        `pooler=True` is for a pooler in transaction mode. Raises `ConfigError` without a DSN,
        `TransportError` when nobody answers, `Unavailable` when the schema does not fit.
        """
        config = DatabaseConfig(
            dsn=require_database_url(dsn), pool_size=pool_size, pooler=pooler, listen=listen
        )
        return cls(await Engine.connect(config), namespace=namespace)

    async def close(self) -> None:
        await self.waits.close()
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
        priority: int | None = None,
        delay: float | timedelta | None = None,
        delay_until: datetime | None = None,
        deadline: float | timedelta | None = None,
        deadline_at: datetime | None = None,
        tags: Mapping[str, str] | None = None,
        lane: str | None = None,
        conn: Any = None,
    ) -> Handle[R]:
        """Submit one call; when this returns, it happens.

        With `conn` (psycopg 3, asyncpg or SQLAlchemy) it belongs to the transaction of that
        connection and happens when that commits. The same `idempotency_key` within its window gives
        the first execution.
        """
        options = Options(
            idempotency_key=idempotency_key,
            priority=priority,
            delay=delay,
            delay_until=delay_until,
            deadline=deadline,
            deadline_at=deadline_at,
            tags=tags or {},
            lane=lane,
        )
        new = self.execution_of(call, options)
        if conn is None:
            answer = await self._submits.ask(new)
        else:
            [answer] = await enqueue(conn, [new], partitions=self.engine.partitions)
        [handle] = self.handles([call], [new], [answer], certain=conn is None)
        return handle

    async def submit_many(
        self, calls: Sequence[Call[R]], *, conn: Any = None, **options: Any
    ) -> list[Handle[R]]:
        """Submit many calls in one statement, all or none; handles in the order given.

        The options of `submit` apply to each; an idempotency key would make them all one.
        """
        return await self.submit_given(calls, Options(**options), conn=conn)

    async def submit_given(
        self, calls: Sequence[Call[R]], options: Options, *, conn: Any = None
    ) -> list[Handle[R]]:
        """`submit_many` with its options as one value."""
        if not calls:
            return []
        news: list[NewExecution] = []

        def chunks(size: int = CHUNK) -> Iterator[Sequence[NewExecution]]:
            for start in range(0, len(calls), size):
                if start >= len(news):
                    chunk = calls[start : start + size]
                    news.extend([self.execution_of(call, options) for call in chunk])
                yield news[start : start + size]

        if conn is not None:
            [everything] = chunks(size=max(1, len(calls)))
            answers = await enqueue(conn, everything, partitions=self.engine.partitions)
        elif len(calls) <= CHUNK:
            [everything] = chunks()
            answers = await repeated(lambda: self.engine.create_execution(everything))
        else:
            answers = await create_together(self.engine, chunks)
        return self.handles(calls, news, answers, certain=conn is None)

    async def start(
        self, flow: Flow, *, idempotency_key: str | None = None, conn: Any = None
    ) -> FlowHandle:
        """Start a flow: all its members and edges exist when this returns, or none.

        With `conn` (psycopg 3, asyncpg or SQLAlchemy) it belongs to the transaction of that
        connection and starts when that commits. The same `idempotency_key` gives the flow that was
        started with it before.
        """
        built = self.flow_of(flow, idempotency_key)
        if conn is None:
            answer = await self._starts.ask(built)
        else:
            answer = await enqueue_flow(conn, built, partitions=self.engine.partitions)
        return FlowHandle(self, built.flow_id, created=not answer.repeated)

    def flow_of(self, flow: Flow, idempotency_key: str | None) -> NewFlow:
        """The flow as this client submits it; raises `ValidationError`."""
        return flow.build(
            namespace=self.namespace,
            creator=self.identity,
            partitions=self.engine.partitions,
            key=idempotency_key,
        )

    def flow(self, flow_id: UUID | str) -> FlowHandle:
        """A handle on a flow started elsewhere."""
        wanted = parse_uuid(flow_id, field="flow_id") if isinstance(flow_id, str) else flow_id
        return FlowHandle(self, wanted, created=False)

    def handle(self, execution_id: ExecutionId | str) -> Handle[Any]:
        """A handle on an execution submitted elsewhere."""
        wanted = self.parse(execution_id)
        return Handle(self, wanted, created=False, certain=False, read_result=read_untyped)

    def parse(self, execution_id: ExecutionId | str) -> ExecutionId:
        """The id, also from its written form; raises `ValidationError`."""
        if isinstance(execution_id, str):
            return ExecutionId.parse(execution_id, partitions=self.engine.partitions)
        return execution_id

    async def describe(self, execution_id: ExecutionId | str) -> ExecutionSnapshot:
        """Everything about one execution; raises `NotFound`."""
        return await self.handle(execution_id).describe()

    async def explain(self, execution_id: ExecutionId | str) -> Explanation:
        """Why an execution does not run, and what would change that; raises `NotFound`."""
        return await self.handle(execution_id).explain()

    async def cancel(self, execution_id: ExecutionId | str, reason: str) -> None:
        """End an execution without a result."""
        await self.handle(execution_id).cancel(reason)

    async def replay(self, execution_id: ExecutionId | str, reason: str | None = None) -> None:
        """Run an execution again that has ended."""
        await self.handle(execution_id).replay(reason)

    async def subscribe_completions(
        self, cursor: bytes = FROM_NOW, *, tag: tuple[str, str] | None = None
    ) -> Subscription[CompletionEvent]:
        """The ends of this namespace's executions as they happen, or from `cursor` on."""
        return await self.engine.subscribe_completions(cursor, self._events(tag))

    async def subscribe_lease_history(
        self, cursor: bytes = FROM_NOW, *, tag: tuple[str, str] | None = None
    ) -> Subscription[LeaseEvent]:
        """Who claims, renews, loses and gives back this namespace's executions."""
        return await self.engine.subscribe_lease_history(cursor, self._events(tag))

    async def subscribe_operator_events(
        self, cursor: bytes = FROM_NOW, *, tag: tuple[str, str] | None = None
    ) -> Subscription[OperatorEvent]:
        """What operators do to this namespace's executions."""
        return await self.engine.subscribe_operator_events(cursor, self._events(tag))

    def _events(self, tag: tuple[str, str] | None) -> EventFilter:
        return EventFilter(namespace=self.namespace, tag=tag)

    async def search(
        self,
        *,
        lane: str | None = None,
        kind: str | None = None,
        state: PublicState | str | None = None,
        tag: tuple[str, str] | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> SearchPage:
        """The executions of this client's namespace that match, newest first, page by page."""
        search = Search(
            namespace=self.namespace,
            lane_id=lane,
            execution_kind=kind,
            public_state=None if state is None else _public_state(state),
            tag=tag,
            created_since=since,
            created_before=before,
        )
        return await self.engine.search_executions(search, cursor=cursor, limit=limit)

    def execution_of(self, call: Call[Any], options: Options) -> NewExecution:
        """The execution that a call and its options make; raises `ValidationError`."""
        task = call.task
        return NewExecution(
            execution_id=ExecutionId.mint(
                namespace=self.namespace,
                idempotency_key=options.idempotency_key,
                partitions=self.engine.partitions,
            ),
            execution_kind=task.kind,
            lane_id=options.lane or task.lane,
            namespace=self.namespace,
            input_payload=call.payload,
            payload_encoding=task.encoding,
            priority=task.priority if options.priority is None else options.priority,
            creator_identity=self.identity,
            idempotency_key=options.idempotency_key,
            tags=options.tags,
            required_capabilities=task.requires,
            policy=task.policy,
            delay=options.delay,
            delay_until=options.delay_until,
            deadline=options.deadline,
            execution_deadline_at=options.deadline_at,
        )

    def handles(
        self,
        calls: Sequence[Call[R]],
        news: Sequence[NewExecution],
        answers: Sequence[Created | Duplicate],
        *,
        certain: bool,
    ) -> list[Handle[R]]:
        """A handle for each call, on the execution that stands for it.

        `certain` says that it exists: it was committed, not left to a transaction of the caller's.
        """
        return [
            Handle(
                self,
                answer.execution_id,
                # The id is ours: a "duplicate" of it is our submit, repeated after a lost answer.
                created=answer.execution_id == new.execution_id,
                certain=certain,
                read_result=call.task.read_result,
            )
            for call, new, answer in zip(calls, news, answers, strict=True)
        ]


def _public_state(state: str) -> PublicState:
    try:
        return PublicState(state)
    except ValueError:
        raise invalid_input("state", state, f"is not one of {', '.join(PublicState)}") from None
