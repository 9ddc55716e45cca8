"""Whatever the server is asked to do is one of the named statements: its own log tells."""

from __future__ import annotations

import re

import asyncpg
import pytest

from flowfabric import App, Client, Ctx, Fail, Flow
from flowfabric.config import DatabaseConfig
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.reconcile.loop import sweep_all
from flowfabric.reconcile.sweeps import SWEEPS
from tests import given
from tests.walls.sources import statements
from tests.walls.test_partitions import name_of

LOGGED = re.compile(r"LOG:  (?:execute [^:\n]*|statement): (.*(?:\n\t.*)*)")
# The driver's own: transactions, what is listened to, and how parameters are encoded.
OF_THE_DRIVER = re.compile(
    r"(BEGIN|START TRANSACTION|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|LISTEN|UNLISTEN|DEALLOCATE)\b"
    r"|.*\bset_config\('jit'|.*\bpg_catalog\.pg_type\b",
    re.DOTALL,
)
KEY = "00" * 32
app = App()


@app.task("add")
async def add(ctx: Ctx, a: int, b: int = 1) -> int:
    await ctx.progress(50, "half")
    return a + b


@app.task("refuse")
async def refuse(ctx: Ctx) -> None:
    raise Fail("no", retryable=False)


@app.task("total")
async def total(ctx: Ctx, n: int) -> int:
    return sum(await ctx.gather([add.call(each) for each in range(n)]))


def sums() -> Flow:
    flow = app.flow("sums")
    first = flow.add(add.call(1))
    flow.add(add.call(2)).after(first)
    return flow


async def what_users_do(dsn: str) -> None:
    """Clients and workers, with flows and children."""
    async with await Client.connect(dsn) as client:
        handles = await client.submit_many([add.call(n) for n in range(20)])
        await client.submit(refuse.call())
        parent = await client.submit(total.call(3))
        flow = await client.start(sums())
        dropped = await client.start(sums())
        await dropped.cancel(reason="not wanted")
        await app.worker(dsn=dsn, concurrency=8).run_until_idle()
        assert [await each.result() for each in handles] == list(range(1, 21))
        assert await parent.result() == 6
        assert set(await flow.result()) == {"add", "add-2"}
        await handles[0].replay()
        await handles[0].explain()
        await handles[0].history()
        await client.search(kind="add")


async def what_operators_do(engine: Engine) -> None:
    """Controls, lists, grants and every sweep."""
    one = given.new(tags={"app.step": "one"})
    await engine.create_execution([one])
    await engine.change_priority(one.execution_id, 7)
    await engine.block_execution_for_admission(one.execution_id, "paused_by_operator")
    await engine.unblock_execution(one.execution_id)
    await engine.seed_waitpoint_hmac_secret("k1", KEY)
    await engine.list_waitpoint_hmac_kids()
    [task] = await engine.claim(given.WORKER, ttl=30)
    await engine.renew([task.lease], ttl=30)
    await engine.revoke_lease(task.lease.execution_id, reason="test")
    await engine.set_lane_state("default", "paused", actor="tests")
    await engine.list_lanes()
    await engine.count_by_lane()
    await engine.list_workers("default")
    await engine.list_flows()
    for sweep in SWEEPS:
        await sweep_all(engine.pool, sweep)


@pytest.mark.session("reads the log of the server, where PgBouncer writes too")
async def test_the_server_sees_only_statements_that_are_looked_at_here(
    db: Connection, ff_dsn: str
) -> None:
    try:
        before = len(await server_log(db))
    except asyncpg.PostgresError as error:
        pytest.skip(f"the server's log cannot be read: {error}")
    await db.execute(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET log_statement = %L',"
        " current_database(), 'all'); END $$"
    )

    await what_users_do(ff_dsn)
    engine = await Engine.connect(DatabaseConfig(dsn=ff_dsn), role="tests")
    try:
        await what_operators_do(engine)
    finally:
        await engine.close()

    logged = LOGGED.findall((await server_log(db))[before:])
    seen = {text.replace("\n\t", "\n").strip() for text in logged}
    named = {name_of(constant) for constant in statements()}
    names = {text.split("\n", 1)[0].removeprefix("-- ") for text in seen if text.startswith("-- ")}
    others = {text for text in seen if not text.startswith("-- ")}
    assert names <= named
    assert [text for text in others if not OF_THE_DRIVER.match(text)] == []
    assert len(names) >= 70


async def server_log(db: Connection) -> str:
    return await db.fetchval("SELECT pg_read_file(current_setting('data_directory') || '/log')")
