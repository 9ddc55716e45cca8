"""Starting a flow on the caller's own connection: it is there if, and when, that commits."""

import contextlib
from typing import Any

import asyncpg
import psycopg
import pytest

from flowfabric import App, Client, ConfigError, Ctx, Flow, NotFound, Quorum
from flowfabric.db.rows import Connection
from flowfabric.errors import CycleDetected
from tests.client.test_enqueue import Abandoned, Open, every_way
from tests.worker.facts import count

pytestmark = [pytest.mark.timeout(30), pytest.mark.direct("conn= needs the database itself")]

app = App()


@app.task("double")
async def double(ctx: Ctx, number: int) -> int:
    return 2 * number


@app.task("total")
async def total(ctx: Ctx) -> int:
    return sum((await ctx.upstreams()).values())


def sums() -> Flow:
    flow = app.flow("sums", tags={"shop.tenant": "acme"})
    parts = [flow.add(double.call(number), name=f"part-{number}") for number in (1, 2, 3)]
    flow.add(total.call(), name="all").after(*parts)
    flow.add(total.call(), name="some").after(*parts, policy=Quorum(3, "let_run"))
    return flow


async def flows(db: Connection) -> int:
    return await db.fetchval("SELECT count(*) FROM ff.flow_core")


@every_way
async def test_a_commit_makes_the_whole_flow_happen(
    client: Client, ff_dsn: str, db: Connection, opened: Open
) -> None:
    async with opened(ff_dsn) as conn:
        handle = await client.start(sums(), conn=conn, idempotency_key="night")
        again = await client.start(sums(), conn=conn, idempotency_key="night")
        assert await flows(db) == await count(db) == 0  # nobody else sees it yet

    assert (handle.created, again.created) == (True, False)
    assert again.flow_id == handle.flow_id
    await app.worker(dsn=ff_dsn).run_until_idle()
    assert await handle.result(10) == {
        "part-1": 2,
        "part-2": 4,
        "part-3": 6,
        "all": 12,
        "some": 12,
    }
    assert (await handle.describe()).tags == {"shop.tenant": "acme"}


@every_way
async def test_a_rollback_leaves_nothing(
    client: Client, ff_dsn: str, db: Connection, opened: Open
) -> None:
    with contextlib.suppress(Abandoned):
        async with opened(ff_dsn) as conn:
            handle = await client.start(sums(), conn=conn, idempotency_key="night")
            raise Abandoned

    assert await flows(db) == await count(db) == 0
    with pytest.raises(NotFound):
        await handle.describe()
    assert (await client.start(sums(), idempotency_key="night")).created


async def test_it_is_whole_even_where_every_statement_commits(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    conn = await asyncpg.connect(ff_dsn)
    handle = await client.start(sums(), conn=conn)
    await conn.close()

    assert await count(db, "waiting_children") == 2
    assert [each.name for each in await handle.members()] == [*sums().members]


async def test_a_graph_that_does_not_fit_leaves_the_transaction_alone(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    circle = app.flow("circle")
    one, other = circle.add(double.call(1)), circle.add(double.call(2))
    other.after(one.after(other))

    async with await psycopg.AsyncConnection.connect(ff_dsn) as conn:
        with pytest.raises(CycleDetected):
            await client.start(circle, conn=conn)
        await client.start(sums(), conn=conn)

    assert await flows(db) == 1


@pytest.mark.parametrize("connection", [object(), "dsn"], ids=["object", "str"])
async def test_a_connection_of_another_kind_is_refused_by_name(
    client: Client, db: Connection, connection: Any
) -> None:
    with pytest.raises(ConfigError, match="psycopg 3"):
        await client.start(sums(), conn=connection)

    assert await flows(db) == 0
