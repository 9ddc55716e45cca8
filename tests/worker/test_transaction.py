"""What a handler writes in its transaction is committed with its result, or not at all."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator

import asyncpg
import pytest

from flowfabric import App, Client, Ctx, ExecutionFailed, Fail, LeaseLost, Retry
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import ConfigError
from flowfabric.states import PublicState
from flowfabric.worker.renewer import Renewer
from flowfabric.worker.running_attempt import RunningAttempt
from flowfabric.worker.transaction import HandlerTransaction
from tests import given
from tests.stories.processes import workers
from tests.worker import locking
from tests.worker.facts import eventually
from tests.worker.proxy import Proxy

pytestmark = [
    pytest.mark.timeout(40),
    pytest.mark.direct("transactions of handlers need the database itself"),
]

WRITE = "INSERT INTO public.ledger VALUES ($1)"


@pytest.fixture(autouse=True)
async def ledger(db: Connection) -> AsyncGenerator[None]:
    """A table of the user's own; every number in it once."""
    await db.execute("CREATE TABLE public.ledger (number integer PRIMARY KEY)")
    yield
    await db.execute("DROP TABLE public.ledger")


async def written(db: Connection) -> list[int]:
    return [row["number"] for row in await db.fetch("SELECT number FROM public.ledger ORDER BY 1")]


async def test_what_is_written_is_there_once_the_execution_has_ended(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, before = App(), []

    @app.task("job")
    async def job(ctx: Ctx, number: int) -> int:
        tx = await ctx.transaction()
        await tx.execute(WRITE, number)
        assert await ctx.transaction() is tx
        before.append(await written(db))
        return number

    async with app.worker(dsn=ff_dsn):
        handle = await client.submit(job.call(7))
        assert await handle.result(timeout=10) == 7

    assert before == [[]]
    assert await written(db) == [7]
    assert await given.completion_events(db, handle.execution_id) == ["success"]


async def test_of_a_handler_that_raises_nothing_is_left(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()

    @app.task("job")
    async def job(ctx: Ctx) -> None:
        await (await ctx.transaction()).execute(WRITE, 1)
        raise Fail("declined", retryable=False)

    async with app.worker(dsn=ff_dsn):
        handle = await client.submit(job.call())
        with pytest.raises(ExecutionFailed, match="declined"):
            await handle.result(timeout=10)

    assert await written(db) == []


async def test_a_statement_that_failed_fails_the_attempt_even_if_its_error_was_swallowed(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()
    await db.execute("INSERT INTO public.ledger VALUES (1)")

    @app.task("job", retry=Retry(max_retries=0))
    async def job(ctx: Ctx) -> None:
        tx = await ctx.transaction()
        await tx.execute(WRITE, 2)
        with pytest.raises(asyncpg.UniqueViolationError):
            await tx.execute(WRITE, 1)

    async with app.worker(dsn=ff_dsn):
        handle = await client.submit(job.call())
        with pytest.raises(ExecutionFailed, match="aborted"):
            await handle.result(timeout=10)

    assert await written(db) == [1]


async def test_of_a_handler_whose_execution_was_cancelled_nothing_is_left(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    """The handler ends before any renewal could tell it."""
    app, seen = App(), []

    @app.task("job")
    async def job(ctx: Ctx) -> str:
        await (await ctx.transaction()).execute(WRITE, 1)
        try:
            await cancel_execution(db, ctx.execution_id, reason="changed my mind")
        finally:  # the worker may be told at once, and cancel this handler here
            seen.append(ctx.execution_id)
        return "mine"

    async with app.worker(dsn=ff_dsn, concurrency=1):
        handle = await client.submit(job.call())
        await eventually(lambda: seen)
        assert await handle.state() is PublicState.CANCELLED

    assert await written(db) == []
    assert await given.completion_events(db, handle.execution_id) == ["cancelled"]


async def test_when_the_answer_to_the_commit_is_lost_it_has_happened_once(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, runs = App(), []

    @app.task("job")
    async def job(ctx: Ctx, number: int) -> int:
        runs.append(number)
        await (await ctx.transaction()).execute(WRITE, number)
        if number == 0:
            proxy.lose_answer(is_recorded)
        return number

    async def is_recorded() -> bool:
        return await handle.state() is PublicState.COMPLETED

    async with Proxy.to(ff_dsn) as proxy, app.worker(dsn=proxy.dsn, concurrency=1):
        handle = await client.submit(job.call(0))
        assert await handle.result(timeout=10) == 0
        after = await client.submit(job.call(1))
        assert await after.result(timeout=15) == 1

    assert runs == [0, 1]
    assert await written(db) == [0, 1]


async def test_when_the_line_is_cut_before_the_commit_it_is_run_again(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, runs = App(), []

    @app.task("job")
    async def job(ctx: Ctx, number: int) -> int:
        runs.append(number)
        await (await ctx.transaction()).execute(WRITE, number)
        if len(runs) == 1:
            await db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name LIKE '%handlers of%'"
            )
        return number

    async with app.worker(dsn=ff_dsn, concurrency=1):
        handle = await client.submit(job.call(5))
        assert await handle.result(timeout=20) == 5

    assert runs == [5, 5]
    assert await written(db) == [5]


async def test_a_line_that_died_in_the_pool_costs_no_attempt(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()

    @app.task("job", retry=Retry(max_retries=0))
    async def job(ctx: Ctx, number: int) -> int:
        if number == 1:
            proxy.cut()
            proxy.mend()
        await (await ctx.transaction()).execute(WRITE, number)
        return number

    async with Proxy.to(ff_dsn) as proxy, app.worker(dsn=proxy.dsn, concurrency=1):
        for number in (0, 1):
            handle = await client.submit(job.call(number))
            assert await handle.result(timeout=15) == number

    assert await written(db) == [0, 1]


async def test_handlers_take_turns_when_there_are_more_than_connections(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, most, now, pair = App(), 0, 0, asyncio.Barrier(2)

    @app.task("job")
    async def job(ctx: Ctx, number: int) -> None:
        nonlocal most, now
        tx = await ctx.transaction()
        now += 1
        most = max(most, now)
        await tx.execute(WRITE, number)
        await pair.wait()
        now -= 1

    async with app.worker(dsn=ff_dsn, concurrency=20, transactions=2):
        handles = await client.submit_many([job.call(number) for number in range(20)])
        for handle in handles:
            await handle.result(timeout=20)

    assert most == 2
    assert await written(db) == list(range(20))


async def test_a_member_that_ends_in_its_transaction_is_heard_by_its_flow(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("job")
    async def job(ctx: Ctx, number: int) -> int:
        await (await ctx.transaction()).execute(WRITE, number)
        return number

    flow = app.flow("two")
    first = flow.add(job.call(1), name="first")
    flow.add(job.call(2), name="second").after(first)

    async with app.worker(dsn=ff_dsn, reconcile=False):
        handle = await client.start(flow)
        assert await handle.result(timeout=20) == {"first": 1, "second": 2}


async def test_a_renewal_that_finds_the_end_which_was_just_committed_is_no_loss(
    client: Client, ff_dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app, found = App(), []
    complete, mark_lost = HandlerTransaction.complete, Renewer._mark_lost

    def noted(renewer: Renewer, attempt: RunningAttempt, why: Exception) -> None:
        found.append(why)
        mark_lost(renewer, attempt, why)

    async def slowly(own: HandlerTransaction, completion: Completion) -> None:
        await complete(own, completion)
        await eventually(lambda: found)

    monkeypatch.setattr(Renewer, "_mark_lost", noted)
    monkeypatch.setattr(HandlerTransaction, "complete", slowly)

    @app.task("job")
    async def job(ctx: Ctx, number: int) -> int:
        await (await ctx.transaction()).execute(WRITE, number)
        return number

    flow = app.flow("two")
    first = flow.add(job.call(1), name="first")
    flow.add(job.call(2), name="second").after(first)

    async with app.worker(dsn=ff_dsn, lease_ttl=1, reconcile=False):
        handle = await client.start(flow)
        assert await handle.result(timeout=20) == {"first": 1, "second": 2}

    assert "lost the lease" not in caplog.text


async def test_the_statements_of_a_handler_are_planned_as_postgres_likes(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("job")
    async def job(ctx: Ctx) -> str:
        return await (await ctx.transaction()).fetchval("SHOW enable_seqscan")

    async with app.worker(dsn=ff_dsn):
        assert await (await client.submit(job.call())).result(timeout=10) == "on"


async def test_a_transaction_that_is_idle_for_longer_than_postgres_allows_completes_once(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, starts = App(), []

    @app.task("job", retry=Retry(max_retries=0))
    async def job(ctx: Ctx) -> str:
        starts.append(ctx.attempt_index)
        tx = await ctx.transaction()
        await tx.execute(WRITE, 1)
        await asyncio.sleep(2.5)
        return await tx.fetchval("SHOW idle_in_transaction_session_timeout")

    async with app.worker(dsn=ff_dsn, lease_ttl=1):
        handle = await client.submit(job.call())
        assert await handle.result(timeout=20) == "1s"

    assert starts == [0]
    assert await written(db) == [1]
    assert (await handle.describe()).infra_release_count == 0


async def test_a_worker_that_freezes_in_a_transaction_keeps_its_rows_no_longer_than_its_lease(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    await db.execute(WRITE, 0)
    async with workers(ff_dsn, "frozen", module="tests.worker.locking", lease_ttl=1) as [frozen]:
        handle = await client.submit(locking.lock.call(0), deadline=60)

        async def locked() -> bool:
            free = await db.fetch(
                "SELECT FROM public.ledger WHERE number = 0 FOR UPDATE SKIP LOCKED"
            )
            return not free

        await eventually(locked, within=20)
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            await db.execute("SET lock_timeout = '10s'")
            await db.execute("UPDATE public.ledger SET number = 100 WHERE number = 0")
        finally:
            await db.execute("RESET lock_timeout")
            os.kill(frozen.pid, signal.SIGCONT)
        assert await handle.result(timeout=30) == "not there any more"


async def test_a_worker_without_room_for_a_transaction_is_refused(ff_dsn: str) -> None:
    with pytest.raises(ConfigError, match="transactions"):
        App().worker(dsn=ff_dsn, transactions=0)


async def test_a_handler_that_lets_the_loss_of_its_lease_pass_leaves_its_slot_in_order(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, lost = App(), []

    @app.task("job")
    async def job(ctx: Ctx) -> None:
        await cancel_execution(db, ctx.execution_id, reason="changed my mind")
        try:
            await ctx.progress(50)
        except LeaseLost as error:
            lost.append(error)
            raise

    @app.task("next")
    async def following(ctx: Ctx) -> str:
        return "next"

    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
    async with app.worker(dsn=ff_dsn, concurrency=1, listen=False):
        await client.submit(job.call())
        after = await client.submit(following.call())
        assert await after.result(timeout=10) == "next"

    assert [type(each) for each in lost] == [LeaseLost]
