"""Limits as an application writes them: tasks, keys, and workers that keep to them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from uuid import uuid4

import pytest

from flowfabric import App, Client, Ctx, Rate
from flowfabric.db.rows import Connection
from flowfabric.errors import ConfigError, NotFound, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests.all_cases import all_cases

pytestmark = pytest.mark.timeout(60)


async def test_a_worker_keeps_to_the_limit_of_each_key(ff_dsn: str, db: Connection) -> None:
    app, running, most = App(), Counter[str](), Counter[str]()
    ended = list[tuple[str, int]]()
    per_customer = app.limit("per-customer", concurrency=2)

    @app.task("bill", limit=per_customer, limit_key=lambda customer, _n: customer)
    async def bill(ctx: Ctx, customer: str, n: int) -> None:
        running[customer] += 1
        most[customer] = max(most[customer], running[customer])
        await asyncio.sleep(0.001)
        running[customer] -= 1
        ended.append((customer, n))

    async with await Client.connect(ff_dsn) as client:
        calls = [bill.call(customer, n) for n in range(10) for customer in ("a", "b", "c")]
        await client.submit_many(calls)
        await client.submit(bill.call("d", 0), limit_key="a")
        await app.worker(dsn=ff_dsn).run_until_idle()

        assert len(ended) == 31
        spread = await db.fetch(
            "SELECT quota_key_id, array_agg(DISTINCT partition_key) AS homes,"
            " array_agg(DISTINCT ff.quota_partition(quota_key_id, 256)) AS keyed"
            " FROM ff.exec_core GROUP BY 1"
        )
        assert all(row["homes"] == row["keyed"] for row in spread), "with their key"
        assert max(most.values()) <= 2
        keys = await client.limits.keys("per-customer")
        assert {key.limit_key for key in keys} == {"a", "b", "c"}
        assert all((key.held_slots, key.held_back) == (0, 0) for key in keys)


async def test_an_execution_that_sleeps_holds_no_slot(ff_dsn: str, ff_clock: Clock) -> None:
    app, order = App(), list[str]()

    @app.task("nap", limit=app.limit("one", concurrency=1))
    async def nap(ctx: Ctx, name: str) -> None:
        order.append(f"{name} begins")
        await ctx.sleep(60)
        order.append(f"{name} ends")

    async with await Client.connect(ff_dsn) as client:
        await client.submit_many(nap.many(["a", "b"]))
        await app.worker(dsn=ff_dsn).run_until_idle()
        assert order == ["a begins", "b begins"]
        await ff_clock.advance(60)
        await app.worker(dsn=ff_dsn).run_until_idle()

    assert sorted(each for each in order if each.endswith("ends")) == ["a ends", "b ends"]


async def test_a_limit_is_changed_at_run_time(ff_dsn: str) -> None:
    app = App()

    @app.task("job", limit=app.limit("one", concurrency=1))
    async def job(ctx: Ctx) -> None: ...

    async with await Client.connect(ff_dsn) as client:
        await client.submit(job.call())
        assert (await client.limits.get("one")).limits.max_concurrent == 1
        changed = await client.limits.set("one", rate=Rate(10, per=60))
        assert (changed.limits.max_concurrent, changed.limits.max_requests_per_window) == (0, 10)
        await client.submit(job.call())  # the code does not change it back
        assert [each.limits for each in await client.limits.list()] == [changed.limits]
        await client.limits.delete("one")
        with pytest.raises(NotFound):
            await client.limits.get("one")
        with pytest.raises(NotFound):
            await client.limits.delete("one")


async def test_admission_by_hand_is_counted_in_the_namespace_of_the_client(ff_dsn: str) -> None:
    policy, job = uuid4(), str(ExecutionId.mint())
    async with (
        await Client.connect(ff_dsn, namespace="shop") as shop,
        await Client.connect(ff_dsn) as other,
    ):
        assert await shop.quotas.limits(policy) is None
        assert (await shop.quotas.create(policy, max_concurrent=1)).created
        assert not (await shop.quotas.create(policy, max_concurrent=9)).created
        stored = await shop.quotas.limits(policy)
        assert stored is not None
        assert stored.max_concurrent == 1
        assert await other.quotas.limits(policy) is None

        assert (await shop.quotas.admit(policy, job)).outcome == "admitted"
        refused = await shop.quotas.admit(policy, str(ExecutionId.mint()))
        assert refused.outcome == "concurrency_exceeded"
        await other.quotas.release(policy, job)  # not its limit
        assert not (await shop.quotas.admit(policy, str(ExecutionId.mint()))).is_admitted
        await shop.quotas.release(policy, job)
        assert (await shop.quotas.admit(policy, str(ExecutionId.mint()))).is_admitted


@pytest.mark.parametrize(
    "numbers",
    [
        {},
        {"concurrency": 0},
        {"concurrency": -1},
        {"concurrency": True},
        {"concurrency": 1.5},
        {"concurrency": "2"},
        {"concurrency": 2**40},
        {"rate": 10},
        {"rate": (10, 60)},
    ],
    ids=str,
)
async def test_numbers_that_are_no_limit_are_refused_everywhere(
    ff_dsn: str, numbers: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        App().limit("x", **numbers)
    async with await Client.connect(ff_dsn) as client:
        with pytest.raises(ValidationError):
            await client.limits.set("x", **numbers)
        assert await client.limits.list() == []


@all_cases(
    ("count", "per"), [(10, None), (10, 0), (10, -1), (0, 60), (-1, 60), (1.0, 60), (True, 60)]
)
def test_a_rate_needs_a_count_and_a_window(count: Any, per: Any) -> None:
    with pytest.raises(ValidationError):
        Rate(count, per=per)


async def test_a_key_that_is_not_text_is_refused(ff_dsn: str) -> None:
    app = App()

    @app.task("job", limit=app.limit("one", concurrency=1), limit_key=lambda n: n)
    async def job(ctx: Ctx, n: int) -> None: ...

    @app.task("free")
    async def free(ctx: Ctx) -> None: ...

    with pytest.raises(ValidationError, match="limit_key 1 must be text"):
        job.call(1)
    with pytest.raises(ConfigError, match="limit"):
        app.task("other", limit="one")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="needs limit="):
        app.task("other", limit_key="x")
    async with await Client.connect(ff_dsn) as client:
        for key in (1, "", b"x", "x" * 2000):
            with pytest.raises(ValidationError, match="limit_key"):
                await client.submit(free.call(), limit_key=key)  # type: ignore[arg-type]
