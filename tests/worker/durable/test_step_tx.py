"""Steps in transactions: the user's rows and the entry are committed together, once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from flowfabric import Ctx, ExecutionFailed, Retry, StepFailed
from flowfabric.db.rows import Connection
from flowfabric.errors import ConfigError, NestedDurableCall, ValidationError
from flowfabric.testing import Clock
from flowfabric.worker.durable import step_tx
from tests.worker.durable.lab import Lab
from tests.worker.proxy import Proxy

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.direct("transactions of handlers need the database itself"),
]


@pytest.fixture(autouse=True)
async def orders(lab: Lab) -> None:
    await lab.db.execute("CREATE TABLE public.orders (id int PRIMARY KEY, n int DEFAULT 0)")


async def rows(lab: Lab) -> list[int]:
    return [row["id"] for row in await lab.db.fetch("SELECT id FROM public.orders ORDER BY id")]


async def test_rows_and_entry_happen_together_and_once(lab: Lab, clock: Clock) -> None:
    async def save(conn: Connection, order: int) -> str:
        lab.did.append("save")
        await conn.execute("INSERT INTO public.orders VALUES ($1)", order)
        return f"saved {order}"

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        saved = await ctx.step_tx("save", save, 7)
        await ctx.sleep(60)
        return saved

    handle = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "saved 7"
    assert await rows(lab) == [7]
    assert lab.did == ["save"]
    same = await lab.db.fetchval(
        "SELECT count(DISTINCT x) FROM (SELECT xmin::text AS x FROM ff.journal WHERE kind = 'step'"
        " UNION ALL SELECT xmin::text FROM public.orders) AS written"
    )
    assert same == 1


async def test_a_function_that_fails_leaves_neither_rows_nor_entry(lab: Lab) -> None:
    async def save(conn: Connection) -> None:
        lab.did.append("save")
        await conn.execute("INSERT INTO public.orders VALUES (1)")
        if len(lab.did) < 2:
            raise OSError("busy")

    @lab.app.task("job", retry=Retry(max_retries=1, initial=0))
    async def job(ctx: Ctx) -> None:
        await ctx.step_tx("save", save)

    handle = await lab.submitted(job.call())

    assert await lab.state(handle) == "completed"
    assert lab.did == ["save", "save"]
    assert await rows(lab) == [1]


async def test_a_failure_that_the_handler_catches_is_the_same_in_every_run(
    lab: Lab, clock: Clock
) -> None:
    async def save(conn: Connection) -> None:
        lab.did.append("save")
        await conn.execute("INSERT INTO public.orders VALUES (1), (1)")

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        try:
            await ctx.step_tx("save", save)
        except StepFailed as error:
            lab.did.append(error.error_type)
        await ctx.sleep(60)
        return "done"

    handle = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "done"
    assert lab.did == ["save", "UniqueViolationError", "UniqueViolationError"]
    assert await rows(lab) == []


async def test_a_result_that_cannot_be_stored_is_a_failure_for_good(lab: Lab) -> None:
    async def save(conn: Connection) -> Any:
        await conn.execute("INSERT INTO public.orders VALUES (1)")
        return object()

    @lab.app.task("job", retry=Retry(max_retries=2, initial=0))
    async def job(ctx: Ctx) -> None:
        await ctx.step_tx("save", save)

    handle = await lab.submitted(job.call())

    with pytest.raises(ExecutionFailed) as failed:
        await handle.result(5)
    assert failed.value.category == "result_encode"
    assert await rows(lab) == []
    assert await lab.journal(handle) == ["save#0 failed"]


@pytest.mark.parametrize("conflicts", [2, 3])
async def test_a_conflict_runs_the_function_again_three_times_in_all(
    lab: Lab, conflicts: int
) -> None:
    async def save(conn: Connection) -> int:
        lab.did.append(await conn.fetchval("SHOW transaction_isolation"))
        if lab.did.count("serializable") <= conflicts:
            raise asyncpg.SerializationError("could not serialize access")
        return len(lab.did)

    @lab.app.task("job")
    async def job(ctx: Ctx) -> int:
        lab.did.append("an attempt")
        return await ctx.step_tx("save", save, isolation="serializable")

    handle = await lab.submitted(job.call())

    assert lab.did[:4] == ["an attempt", *["serializable"] * 3]
    # The attempt that gave up is delayed; on a slow machine its next one has begun by now.
    assert lab.did[4:5] in ([], ["an attempt"])
    assert await lab.state(handle) in (
        ("completed",) if conflicts < 3 else ("delayed", "completed")
    )


async def test_an_isolation_that_does_not_exist_is_refused(lab: Lab) -> None:
    async def save(conn: Connection) -> None: ...

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        with pytest.raises(ValidationError, match="isolation"):
            await ctx.step_tx("save", save, isolation="chaos")  # pyright: ignore[reportArgumentType]
        return "told"

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "told"


async def test_handlers_that_keep_every_connection_do_not_wait_for_one_another_for_ever(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_tx, "_WAIT_BESIDE_OWN", 0.3)
    both = asyncio.Barrier(2)

    async def save(conn: Connection, order: int) -> None:
        await conn.execute("INSERT INTO public.orders VALUES ($1)", order)

    @lab.app.task("job")
    async def job(ctx: Ctx, order: int) -> None:
        conn = await ctx.transaction()
        lab.did.append(order)
        if len(lab.did) <= 2:
            await both.wait()
        await conn.execute("INSERT INTO public.orders VALUES ($1)", order + 10)
        await ctx.step_tx("save", save, order)

    handles = await lab.client.submit_many(job.many([1, 2]))
    async with lab.app.worker(dsn=lab.dsn, transactions=2):
        for handle in handles:
            await handle.result(30)

    assert await rows(lab) == [1, 2, 11, 12]
    assert len(lab.did) > 2, "an attempt was released, and ran again"


async def test_a_step_beside_the_only_connection_of_its_handler_is_refused(lab: Lab) -> None:
    async def save(conn: Connection) -> None:
        lab.did.append("saved")

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        await ctx.transaction()
        await ctx.step_tx("save", save)

    handle = await lab.submitted(job.call(), transactions=1)
    with pytest.raises(ExecutionFailed, match="has the only connection of the worker"):
        await handle.result(5)
    assert lab.did == []


async def test_durable_calls_inside_are_refused(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        async def save(conn: Connection) -> str:
            with pytest.raises(NestedDurableCall):
                await ctx.sleep(1)
            return ctx.effect_key

        return await ctx.step_tx("save", save)

    handle = await lab.submitted(job.call())

    assert len(await handle.result(5)) == 36


@pytest.mark.session("loses the answer of one session")
@pytest.mark.parametrize("committed", [True, False])
async def test_a_commit_without_an_answer_is_looked_up(lab: Lab, committed: bool) -> None:
    """The connection breaks as the commit is answered, or while it is carried out."""

    async def save(conn: Connection) -> str:
        lab.did.append("save")
        await conn.execute("INSERT INTO public.orders VALUES (1)")
        return "saved"

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        return await ctx.step_tx("save", save)

    async def saved() -> bool:
        return await lab.db.fetchval("SELECT EXISTS (SELECT FROM public.orders)")

    if not committed:
        await lab.db.execute(DIES_IN_ITS_FIRST_COMMIT)
    handle = await lab.client.submit(job.call())
    async with Proxy.to(lab.dsn) as proxy:
        if committed:
            proxy.lose_answer(saved)
        async with lab.app.worker(dsn=proxy.dsn, lease_ttl=10):
            assert await handle.result(30) == "saved"

    assert await rows(lab) == [1]
    assert lab.did == ["save"] * (1 if committed else 2)
    assert await lab.journal(handle) == ["save#0 done"]
    assert (await lab.row(handle))["lease_epoch"] == 1


DIES_IN_ITS_FIRST_COMMIT = """
CREATE SEQUENCE public.commits;
CREATE FUNCTION public.die_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('public.commits') = 1 THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
        PERFORM pg_sleep(5);
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER dies AFTER INSERT ON public.orders DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION public.die_once();
"""


# The open form.


def with_asyncpg(dsn: str) -> Callable[[Any], Awaitable[None]]:
    async def work(entry: Any) -> None:
        conn = await asyncpg.connect(dsn)
        try:
            async with conn.transaction():
                await conn.execute("INSERT INTO public.orders VALUES (1)")
                await entry.complete({"id": 1}, conn=conn)
        finally:
            await conn.close()

    return work


def with_psycopg(dsn: str) -> Callable[[Any], Awaitable[None]]:
    psycopg = pytest.importorskip("psycopg")

    async def work(entry: Any) -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            await conn.execute("INSERT INTO public.orders VALUES (1)")
            await entry.complete({"id": 1}, conn=conn)

    return work


def with_sqlalchemy(dsn: str) -> Callable[[Any], Awaitable[None]]:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    pytest.importorskip("psycopg")

    async def work(entry: Any) -> None:
        engine = sqlalchemy.create_engine(dsn.replace("postgresql://", "postgresql+psycopg://"))
        try:
            with engine.begin() as conn:
                conn.exec_driver_sql("INSERT INTO public.orders VALUES (1)")
                await entry.complete({"id": 1}, conn=conn)
        finally:
            engine.dispose()

    return work


@pytest.mark.parametrize("driver", [with_asyncpg, with_psycopg, with_sqlalchemy])
async def test_the_handler_completes_a_step_on_a_connection_of_its_own(
    lab: Lab, clock: Clock, driver: Any
) -> None:
    work = driver(lab.dsn)

    @lab.app.task("job")
    async def job(ctx: Ctx) -> dict[str, int]:
        entry = await ctx.begin_step("save")
        lab.did.append(entry.done)
        if not entry.done:
            await work(entry)
        await ctx.sleep(60)
        return entry.value

    handle = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == {"id": 1}
    assert lab.did == [False, True]
    assert await rows(lab) == [1]


async def test_work_that_is_rolled_back_can_be_done_and_completed_again(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> int:
        entry = await ctx.begin_step("save", returns=int)
        conn = await asyncpg.connect(lab.dsn)
        try:
            for number in (1, 2):
                transaction = conn.transaction()
                await transaction.start()
                await conn.execute("INSERT INTO public.orders VALUES ($1)", number)
                await entry.complete(number, conn=conn)
                await (transaction.rollback() if number == 1 else transaction.commit())
        finally:
            await conn.close()
        return entry.value

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == 2
    assert await rows(lab) == [2]
    [entry] = await lab.entries(handle)
    assert entry["value"] == b"2"


async def test_a_step_can_be_completed_without_a_connection_but_not_twice(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        entry = await ctx.begin_step("save")
        if entry.done:
            with pytest.raises(ConfigError):
                await entry.complete("again")
        else:
            await entry.complete("value")
        await ctx.sleep(60)
        return entry.value

    handle = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "value"
