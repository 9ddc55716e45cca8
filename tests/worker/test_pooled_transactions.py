"""Behind PgBouncer in transaction mode: transactions of handlers take no lease's renewal away."""

import asyncio
from collections.abc import AsyncGenerator, Generator

import pytest

from flowfabric import App, Client, Ctx, Retry
from flowfabric.db.rows import Connection
from tests.pgbouncer import PgBouncer, installed
from tests.worker.facts import eventually, lease_expired_events, told_twice

pytestmark = [
    pytest.mark.direct("transactions of handlers need the database itself"),
    pytest.mark.timeout(120),
    pytest.mark.session("starts a PgBouncer of its own"),
    pytest.mark.skipif(
        installed() is None, reason="no pgbouncer on this machine: Debian's package"
    ),
]

TTL, POOL = 3, 6


@pytest.fixture
def pooled(ff_dsn: str) -> Generator[str]:
    """A DSN through a pooler with six connections."""
    with PgBouncer.start(ff_dsn, default_pool_size=POOL) as bouncer:
        yield bouncer.through(ff_dsn)


@pytest.fixture(autouse=True)
async def ledger(db: Connection) -> AsyncGenerator[None]:
    await db.execute("CREATE TABLE public.ledger (number integer PRIMARY KEY)")
    yield
    await db.execute("DROP TABLE public.ledger")


def writing(seconds: float) -> tuple[App, list[int]]:
    """An app whose task has a transaction open for so long, and the numbers of its starts."""
    app, starts = App(), []

    @app.task("write", retry=Retry(max_retries=0))
    async def write(ctx: Ctx, number: int) -> int:
        starts.append(number)
        tx = await ctx.transaction()
        await tx.execute("INSERT INTO public.ledger VALUES ($1)", number)
        await asyncio.sleep(seconds)
        return number

    return app, starts


@pytest.mark.timing
async def test_two_workers_with_more_transactions_than_the_pooler_has_room_for_lose_no_lease(
    client: Client, pooled: str, db: Connection
) -> None:
    executions = 12
    app, starts = writing(1.2 * TTL)
    settings = {"dsn": pooled, "pooler": True, "transactions": 4, "lease_ttl": TTL}
    async with (
        app.worker(**settings, concurrency=6, worker_instance_id="a"),
        app.worker(**settings, concurrency=6, worker_instance_id="b"),
    ):
        handles = await client.submit_many(app.tasks["write"].many(range(executions)))
        for handle in handles:
            await handle.result(timeout=60)

    assert sorted(starts) == list(range(executions))
    assert await lease_expired_events(db) == 0
    assert await told_twice(db) == 0
    assert await db.fetchval("SELECT count(*) FROM public.ledger") == executions


async def test_a_transaction_that_would_take_the_last_connection_waits(
    client: Client, ff_dsn: str, db: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    app, starts = writing(1.0)
    with PgBouncer.start(ff_dsn, default_pool_size=2) as bouncer:
        async with app.worker(dsn=bouncer.through(ff_dsn), pooler=True, lease_ttl=5):
            handles = await client.submit_many(app.tasks["write"].many(range(2)))
            for handle in handles:
                await handle.result(timeout=30)

    assert sorted(starts) == [0, 1]
    assert "default_pool_size" in caplog.text


async def test_with_a_direct_dsn_leases_are_renewed_past_the_pooler(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, starts = App(), []

    @app.task("job", retry=Retry(max_retries=0))
    async def job(ctx: Ctx) -> None:
        starts.append(ctx.attempt_index)
        await asyncio.sleep(1.2 * TTL)

    async def renewers() -> bool:
        return await db.fetchval(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'flowfabric renewer')"
        )

    with PgBouncer.start(ff_dsn, default_pool_size=1) as bouncer:
        pooled = bouncer.through(ff_dsn)
        async with app.worker(dsn=pooled, direct_dsn=ff_dsn, pooler=True, lease_ttl=TTL):
            handle = await client.submit(job.call())
            await eventually(renewers)
            await handle.result(timeout=30)

    assert starts == [0]


async def test_a_worker_that_is_idle_in_a_transaction_is_bounded_behind_a_pooler_too(
    client: Client, pooled: str
) -> None:
    app = App()

    @app.task("job", retry=Retry(max_retries=0))
    async def job(ctx: Ctx) -> str:
        tx = await ctx.transaction()
        return await tx.fetchval("SHOW idle_in_transaction_session_timeout")

    async with app.worker(dsn=pooled, pooler=True, lease_ttl=TTL):
        handle = await client.submit(job.call())
        assert await handle.result(timeout=20) == "3s"
