"""Waiting for an end: every end has its answer, and waiting is cheap."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from flowfabric import (
    App,
    Client,
    Ctx,
    ExecutionCancelled,
    ExecutionExpired,
    ExecutionFailed,
    ExecutionId,
    Fail,
    ResultDecodeError,
    ResultTimeout,
    Retry,
    Unavailable,
    ValidationError,
    sync,
)
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from tests import given
from tests.worker.facts import eventually

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def app() -> App:
    """An app with one task, the `job` that tests create by hand too."""
    made = App()

    @made.task("job")
    async def job(ctx: Ctx, number: int = 0) -> int:
        if number < 0:
            raise Fail("too small", category="range", retryable=False)
        return number

    return made


async def end_all(db: Connection, results: dict[Any, bytes]) -> None:
    """Complete these executions by hand, in one statement."""
    claimed = await claim(db, given.WORKER, ttl=30, limit=1000)
    await complete(db, [Completion(one.lease, results[one.lease.execution_id]) for one in claimed])


async def test_a_failure_tells_reason_and_category(client: Client, ff_dsn: str, app: App) -> None:
    handle = await client.submit(app.tasks["job"].call(-1))
    await app.worker(dsn=ff_dsn).run_until_idle()

    with pytest.raises(ExecutionFailed) as failed:
        await handle.result(timeout=10)

    assert (failed.value.reason, failed.value.category) == ("too small", "range")
    assert failed.value.execution_id == handle.execution_id


@pytest.mark.session("begins when a process is registered for notifications")
async def test_a_cancelled_one_tells_why_also_to_those_who_wait_already(
    client: Client, db: Connection, app: App
) -> None:
    handle = await client.submit(app.tasks["job"].call())
    waiting = asyncio.create_task(handle.result(timeout=10))
    await eventually(lambda: is_waited_for(db))

    await handle.cancel("not needed")
    await handle.cancel("again is fine")

    with pytest.raises(ExecutionCancelled, match="not needed") as cancelled:
        await waiting
    assert cancelled.value.cancelled_by == "operator_override"


async def test_what_ended_otherwise_cannot_be_cancelled(
    client: Client, ff_dsn: str, app: App
) -> None:
    handle = await client.submit(app.tasks["job"].call())
    await app.worker(dsn=ff_dsn).run_until_idle()

    with pytest.raises(ValidationError, match="already terminal in state completed"):
        await handle.cancel()


async def test_one_whose_deadline_passed_has_expired(
    client: Client, db: Connection, app: App
) -> None:
    handle = await client.submit(app.tasks["job"].call(), deadline=0.01)
    await eventually(lambda: expire_executions(db, 10))

    with pytest.raises(
        ExecutionExpired, match=r"execution_deadline: its deadline, .* UTC, passed; raise deadline="
    ):
        await handle.result(timeout=10)


@pytest.mark.parametrize("timeout", [0.2, timedelta(seconds=0.2)], ids=["seconds", "timedelta"])
async def test_waiting_ends_in_time_and_the_execution_goes_on(
    client: Client, db: Connection, app: App, timeout: Any
) -> None:
    handle = await client.submit(app.tasks["job"].call(5))
    began = time.monotonic()

    with pytest.raises(ResultTimeout, match=r"0\.2 s"):
        await handle.result(timeout=timeout)

    assert time.monotonic() - began >= 0.2
    await end_all(db, {handle.execution_id: b"5"})
    assert await handle.result(timeout=10) == 5


async def test_what_has_ended_already_is_answered_even_if_there_is_no_time_to_wait(
    client: Client, db: Connection, app: App
) -> None:
    handle = await client.submit(app.tasks["job"].call(5))
    await end_all(db, {handle.execution_id: b"5"})

    assert await handle.result(timeout=0) == 5


@pytest.mark.parametrize("listen", [True, False], ids=["notified", "polling"])
@pytest.mark.direct("looks for the statements of the client")
async def test_a_waiter_hears_of_the_end(
    ff_dsn: str, db: Connection, app: App, listen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowfabric.client.outcome_waiter._POLL_LISTENING", 3600.0)
    async with await Client.connect(ff_dsn, listen=listen) as client:
        handle = await client.submit(app.tasks["job"].call(5))
        waiting = asyncio.create_task(handle.result(timeout=10))
        await eventually(lambda: has_looked(db))
        await end_all(db, {handle.execution_id: b"5"})

        assert await waiting == 5


@pytest.mark.session("begins when a process is registered for notifications")
async def test_a_notified_waiter_hears_of_it_at_once(
    client: Client, db: Connection, app: App
) -> None:
    took = []
    for number in range(5):
        handle = await client.submit(app.tasks["job"].call(number))
        waiting = asyncio.create_task(handle.result(timeout=10))
        await eventually(lambda: is_waited_for(db))
        ended_at = time.monotonic()
        await end_all(db, {handle.execution_id: b"%d" % number})
        assert await waiting == number
        took.append(time.monotonic() - ended_at)

    assert sorted(took)[2] < 0.2


async def has_looked(db: Connection) -> bool:
    """Has a client asked for outcomes, and found none?"""
    return await db.fetchval(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'flowfabric client' AND state = 'idle'"
        " AND query LIKE '%executions.read_outcomes%')"
    )


async def is_waited_for(db: Connection) -> bool:
    return await db.fetchval("SELECT EXISTS (SELECT FROM ff.waiter WHERE topic = 'completion')")


async def test_many_waiters_of_one_execution_all_hear_of_it(
    client: Client, db: Connection, app: App
) -> None:
    handle = await client.submit(app.tasks["job"].call(5))
    same = client.handle(handle.execution_id)
    waiting = [asyncio.create_task(one.result(timeout=10)) for one in (handle, same, handle)]
    impatient = asyncio.create_task(handle.result(timeout=0.05))
    await asyncio.wait({impatient})
    await end_all(db, {handle.execution_id: b"5"})

    assert await asyncio.gather(*waiting) == [5, 5, 5]
    assert isinstance(impatient.exception(), ResultTimeout)


async def commits(db: Connection) -> int:
    """Transactions committed on this database by connections that are gone."""
    await eventually(lambda: no_clients(db))
    await db.execute("SELECT pg_stat_force_next_flush()")
    return await db.fetchval(
        "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    )


async def no_clients(db: Connection) -> bool:
    return not await db.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name IN ('flowfabric client', 'flowfabric listener')"
    )


@pytest.mark.timing
@pytest.mark.parametrize("listen", [True, False], ids=["notified", "polling"])
@pytest.mark.session("waits until the sessions of a client are gone")
async def test_two_hundred_waiters_of_one_client_cost_few_statements(
    ff_dsn: str, db: Connection, app: App, listen: bool
) -> None:
    before = await commits(db)
    async with await Client.connect(ff_dsn, listen=listen) as client:
        handles = await client.submit_many(app.tasks["job"].many(range(200)))
        waiting = [asyncio.create_task(handle.result(timeout=20)) for handle in handles]
        with pytest.raises(ResultTimeout):
            await handles[0].result(timeout=0.5)
        results = {handle.execution_id: b"%d" % n for n, handle in enumerate(handles)}
        await end_all(db, results)
        assert await asyncio.gather(*waiting) == list(range(200))

    # Not one for each waiter. The server also counts what it does itself, and sessions that ended
    # a moment ago.
    assert await commits(db) - before < 100


@pytest.mark.session("begins when a process is registered for notifications")
@pytest.mark.direct("looks for the statements of the client")
async def test_a_client_that_is_gone_is_no_longer_listed_as_waiting(
    ff_dsn: str, db: Connection, app: App
) -> None:
    async with await Client.connect(ff_dsn) as client:
        handle = await client.submit(app.tasks["job"].call())
        waiting = asyncio.create_task(handle.result(timeout=10))
        await eventually(lambda: is_waited_for(db))
        await end_all(db, {handle.execution_id: b"0"})
        await waiting

    assert not await is_waited_for(db)


async def test_a_closed_client_says_so_to_those_who_wait_and_to_those_who_come(
    ff_dsn: str, app: App
) -> None:
    client = await Client.connect(ff_dsn)
    handle = await client.submit(app.tasks["job"].call())
    waiting = asyncio.create_task(handle.result())
    await asyncio.sleep(0.05)  # whether it waits by then or comes later: the answer is the same

    await client.close()

    for call in (waiting, handle.result(), client.submit(app.tasks["job"].call())):
        with pytest.raises(Unavailable, match="closed"):
            async with asyncio.timeout(5):
                await call


class Total(msgspec.Struct):
    number: int


async def test_a_stored_result_of_another_type_is_an_error_of_ours_wherever_it_is_read(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    """As after a release that changed what a task returns."""
    app = App()

    @app.task("job")
    async def job(ctx: Ctx) -> Total: ...

    @app.task("parent", retry=Retry(max_retries=2, initial=0))
    async def parent(ctx: Ctx) -> int:
        return (await ctx.gather([job.call()]))[0].number

    async def blocking() -> object:
        return await asyncio.to_thread(read_blocking, handle.execution_id)

    def read_blocking(execution_id: ExecutionId) -> object:
        with sync.Client.connect(ff_dsn) as connected:
            [again] = [connected.submit(job.call(), idempotency_key="k")]
            assert again.execution_id == execution_id
            return again.result(timeout=10)

    handle = await client.submit(job.call(), idempotency_key="k")
    await end_all(db, {handle.execution_id: b'{"number":"seven"}'})

    for read in (handle.result(timeout=10), blocking()):
        with pytest.raises(ResultDecodeError, match="cannot be read as Total") as refused:
            await read
        error = refused.value
        assert (error.execution_id, error.execution_kind) == (handle.execution_id, "job")
        assert (error.path, error.stored) == ("$.number", """b'{"number":"seven"}'""")
    assert await client.handle(handle.execution_id).result(timeout=10) == {"number": "seven"}

    waits = await client.submit(parent.call())
    del app.tasks["job"]
    await app.worker(dsn=ff_dsn).run_until_idle()
    [child] = await claim(db, given.WORKER, ttl=30)
    await complete(db, [Completion(child.lease, b'"x"', "json")])
    async with app.worker(dsn=ff_dsn):
        with pytest.raises(ExecutionFailed, match="cannot be read as Total") as failed:
            await waits.result(timeout=10)
    assert str(child.lease.execution_id) in str(failed.value)
    assert len(await waits.attempts()) == 1


@pytest.mark.parametrize("timeout", ["5", True, float("nan"), float("inf")])
async def test_a_timeout_that_is_no_duration_is_refused(
    client: Client, app: App, timeout: Any
) -> None:
    handle = await client.submit(app.tasks["job"].call())

    with pytest.raises(ValidationError, match=r"timeout .* must be a number of seconds"):
        await handle.result(timeout=timeout)
