"""The blocking client: the same answers without an event loop."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from inspect import signature
from typing import Any, TypeVar

import asyncpg
import psycopg
import pytest
import sqlalchemy

from flowfabric import (
    App,
    ConfigError,
    Ctx,
    ExecutionCancelled,
    ExecutionFailed,
    Flow,
    FlowCancelled,
    FlowFailed,
    NotFound,
    ResultTimeout,
    TransportError,
    ValidationError,
)
from flowfabric import FlowHandle as AsyncFlowHandle
from flowfabric import Handle as AsyncHandle
from flowfabric.client.admin import Admin as AsyncAdmin
from flowfabric.db.rows import Connection
from flowfabric.states import DerivedFlowState, PublicState
from flowfabric.sync import Admin, Client, FlowHandle, Handle
from tests.worker.facts import count

pytestmark = pytest.mark.timeout(30)

T = TypeVar("T")
app = App()


@app.task("double")
async def double(ctx: Ctx, number: int) -> int:
    if number < 0:
        raise ValueError("negative")
    return 2 * number


async def blocking(script: Callable[[], T]) -> T:
    """The answer of a script that blocks, as a thread without a loop runs it."""
    return await asyncio.to_thread(script)


async def test_a_script_submits_waits_and_looks(ff_dsn: str) -> None:
    def script() -> None:
        with Client.connect(ff_dsn) as client:
            handle = client.submit(
                double.call(21), idempotency_key="k", priority=4, tags={"a.b": "c"}
            )
            assert handle.created
            assert handle.result(timeout=10) == 42
            assert handle.result(timedelta(seconds=10)) == 42
            assert handle.state() is PublicState.COMPLETED
            snapshot = handle.describe()
            assert (snapshot.priority, snapshot.tags) == (4, {"a.b": "c"})
            assert [attempt.outcome for attempt in handle.attempts()] == ["success"]
            again = client.submit(double.call(1), idempotency_key="k", on_conflict="return")
            assert (again.created, again.execution_id) == (False, handle.execution_id)
            assert client.handle(str(handle.execution_id)).result(timeout=10) == 42
            assert client.describe(handle.execution_id) == snapshot
            assert [one.execution_id for one in client.search(tag=("a.b", "c")).executions] == [
                handle.execution_id
            ]

    async with app.worker(dsn=ff_dsn):
        await blocking(script)


async def test_many_are_answered_in_order(ff_dsn: str) -> None:
    def script() -> list[int]:
        with Client.connect(ff_dsn) as client:
            handles = client.submit_many(double.many(range(20)), priority=2)
            return [handle.result(timeout=10) for handle in handles]

    async with app.worker(dsn=ff_dsn):
        assert await blocking(script) == [2 * number for number in range(20)]


async def test_every_other_end_is_raised(ff_dsn: str) -> None:
    def script() -> None:
        with Client.connect(ff_dsn) as client:
            with pytest.raises(ExecutionFailed, match="negative"):
                client.submit(double.call(-1)).result(timeout=10)
            later = client.submit(double.call(1), delay=60)
            with pytest.raises(ResultTimeout):
                later.result(timeout=0.1)
            later.cancel("enough")
            with pytest.raises(ExecutionCancelled, match="enough"):
                later.result(timeout=10)
            another = client.submit(double.call(1), delay=60)
            client.cancel(another.execution_id, "that too")
            assert another.state() is PublicState.CANCELLED
            with pytest.raises(NotFound):
                client.describe("{fp:7}:0190e0ee-36ae-7c13-9fcc-2703a5f6b358")
            with pytest.raises(ValidationError):
                client.handle("nonsense")

    async with app.worker(dsn=ff_dsn):
        await blocking(script)


async def test_threads_may_share_a_client(ff_dsn: str, db: Connection) -> None:
    def script() -> set[int]:
        with Client.connect(ff_dsn) as client, ThreadPoolExecutor(8) as threads:

            def one(number: int) -> int:
                return client.submit(double.call(number)).result(timeout=10)

            return set(threads.map(one, range(40)))

    async with app.worker(dsn=ff_dsn):
        assert await blocking(script) == {2 * number for number in range(40)}
    assert await count(db) == 40


class Abandoned(Exception):
    """The caller's transaction is rolled back."""


@contextlib.contextmanager
def over_sqlalchemy(dsn: str) -> Any:
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    try:
        with engine.begin() as conn:
            yield conn
    finally:
        engine.dispose()


@pytest.mark.parametrize(
    "opened", [psycopg.connect, over_sqlalchemy], ids=["psycopg", "sqlalchemy"]
)
@pytest.mark.direct("conn= needs the database itself")
async def test_a_submit_on_the_callers_connection_belongs_to_its_transaction(
    ff_dsn: str, db: Connection, opened: Any
) -> None:
    def script() -> tuple[Any, list[Any]]:
        with Client.connect(ff_dsn) as client:
            with contextlib.suppress(Abandoned), opened(ff_dsn) as conn:
                client.submit(double.call(1), conn=conn)
                raise Abandoned
            with opened(ff_dsn) as conn:
                one = client.submit(double.call(2), conn=conn)
                return one.created, [
                    handle.created
                    for handle in client.submit_many([double.call(3), double.call(4)], conn=conn)
                ]

    assert await blocking(script) == (True, [True, True])
    assert await count(db, "waiting") == 3


@pytest.mark.direct("conn= needs the database itself")
async def test_a_connection_that_does_not_block_is_refused(ff_dsn: str, db: Connection) -> None:
    asynchronous = await psycopg.AsyncConnection.connect(ff_dsn)
    foreign = await asyncpg.connect(ff_dsn)

    def script() -> None:
        with Client.connect(ff_dsn) as client:
            for conn in (asynchronous, foreign):
                with pytest.raises(ConfigError, match="blocking"):
                    client.submit(double.call(1), conn=conn)
            with pytest.raises(ConfigError, match="psycopg 3"):
                client.submit(double.call(1), conn=object())

    try:
        await blocking(script)
    finally:
        await asynchronous.close()
        await foreign.close()
    assert await count(db) == 0


async def test_a_client_that_cannot_connect_leaves_no_thread_behind() -> None:
    def script() -> None:
        with pytest.raises(TransportError):
            Client.connect("postgresql://ann@127.0.0.1:1/shop")

    await blocking(script)

    assert not [thread for thread in threading.enumerate() if "sync client" in thread.name]


async def test_a_closed_client_leaves_no_thread_behind(ff_dsn: str) -> None:
    def script() -> None:
        Client.connect(ff_dsn).close()

    await blocking(script)

    assert not [thread for thread in threading.enumerate() if "sync client" in thread.name]


# Flows and operators.


def pair(number: int) -> Flow:
    flow = app.flow("pair")
    first = flow.add(double.call(number), name="first")
    flow.add(double.call(7), name="second").after(first)
    return flow


async def test_a_script_starts_a_flow_waits_and_looks(ff_dsn: str) -> None:
    def script() -> None:
        with Client.connect(ff_dsn) as client:
            started = client.start(pair(3), idempotency_key="k")
            assert started.created
            assert started.result(timeout=10) == {"first": 6, "second": 14}
            assert started.state() is DerivedFlowState.COMPLETED
            assert {member.name for member in started.members()} == {"first", "second"}
            assert started.member("second").result(timeout=10) == 14
            again = client.start(pair(3), idempotency_key="k")
            assert (again.created, again.flow_id) == (False, started.flow_id)
            found = client.flow(str(started.flow_id))
            assert found.describe() == started.describe()
            assert repr(found) == f"<handle of flow {started.flow_id}>"

    async with app.worker(dsn=ff_dsn):
        await blocking(script)


async def test_every_other_end_of_a_flow_is_raised(ff_dsn: str) -> None:
    def script() -> None:
        with Client.connect(ff_dsn) as client:
            with pytest.raises(FlowFailed, match="negative"):
                client.start(pair(-1)).result(timeout=10)
            stuck = app.flow("stuck")
            stuck.add(double.call(1), lane="nobody's")
            idle = client.start(stuck)
            with pytest.raises(ResultTimeout):
                idle.result(timeout=0.05)
            idle.cancel("enough", policy="cancel_pending")
            with pytest.raises(FlowCancelled, match="enough"):
                idle.result(timeout=10)
            with pytest.raises(ValidationError, match="members"):
                client.start(app.flow("empty"))
            with pytest.raises(NotFound):
                idle.member("nobody")
            with pytest.raises(ValidationError):
                client.flow("nonsense")

    async with app.worker(dsn=ff_dsn):
        await blocking(script)


@pytest.mark.parametrize(
    "opened", [psycopg.connect, over_sqlalchemy], ids=["psycopg", "sqlalchemy"]
)
@pytest.mark.direct("conn= needs the database itself")
async def test_a_start_on_the_callers_connection_belongs_to_its_transaction(
    ff_dsn: str, db: Connection, opened: Any
) -> None:
    def script() -> tuple[bool, str]:
        with Client.connect(ff_dsn) as client:
            with contextlib.suppress(Abandoned), opened(ff_dsn) as conn:
                client.start(pair(1), conn=conn)
                raise Abandoned
            with opened(ff_dsn) as conn:
                handle = client.start(pair(2), conn=conn)
            return handle.created, handle.state()

    assert await blocking(script) == (True, "blocked")
    assert await db.fetchval("SELECT count(*) FROM ff.flow_core") == 1
    assert await count(db) == 2


@pytest.mark.direct("conn= needs the database itself")
async def test_a_start_on_a_connection_that_does_not_block_is_refused(ff_dsn: str) -> None:
    conn = await asyncpg.connect(ff_dsn)

    def script() -> None:
        with Client.connect(ff_dsn) as client, pytest.raises(ConfigError, match="blocking"):
            client.start(pair(1), conn=conn)

    await blocking(script)
    await conn.close()


@pytest.mark.direct("the actor is the one of the token")
async def test_operators_have_their_controls_too(ff_dsn: str, db: Connection) -> None:
    def script() -> None:
        with Client.connect(ff_dsn) as client:
            waiting = client.submit(double.call(1))
            assert client.admin.actor == client.admin.actor.strip() != ""
            client.admin.actor = "ann"
            assert client.admin.set_priority(waiting.execution_id, 9, reason="urgent") == 9
            assert client.admin.pause_lane("default", reason="night").lane_state == "paused"
            [lane] = client.admin.lanes()
            assert (lane.lane_id, lane.lane_state) == ("default", "paused")
            client.admin.resume_lane("default")
            assert client.admin.list_workers().workers == []
            with pytest.raises(NotFound):
                client.admin.drain_lane("nowhere")

    await blocking(script)

    actors = await db.fetch("SELECT DISTINCT actor FROM ff.operator_event")
    assert [row["actor"] for row in actors] == ["ann"]


def test_a_twin_has_the_parameters_and_the_words_of_its_original() -> None:
    for ours, theirs in ((FlowHandle, AsyncFlowHandle), (Handle, AsyncHandle), (Admin, AsyncAdmin)):
        for name in vars(theirs):
            if not name.startswith("_"):
                twin, original = getattr(ours, name), getattr(theirs, name)
                assert twin.__doc__
                assert list(signature(twin).parameters) == list(signature(original).parameters)
