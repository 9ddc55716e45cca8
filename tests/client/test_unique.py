"""Unique and debounced submits: one execution of a key at a time."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from flowfabric import (
    App,
    Client,
    ConfigError,
    Ctx,
    Debounce,
    Retry,
    Unique,
    UniqueKeyTaken,
    ValidationError,
)
from flowfabric.states import PublicState
from flowfabric.sync import Client as SyncClient
from flowfabric.testing import Clock
from tests.all_cases import all_cases

pytestmark = pytest.mark.timeout(60)
app = App()
ran = list[str]()


@app.task("job")
async def job(ctx: Ctx, name: str) -> str:
    ran.append(name)
    return name


async def test_a_key_is_taken_until_its_execution_has_ended(ff_dsn: str) -> None:
    async with await Client.connect(ff_dsn) as client:
        first = await client.submit(job.call("a"), unique=Unique("k"))
        second = await client.submit(job.call("b"), unique=Unique("k"))
        assert (first.created, second.created) == (True, False)
        assert second.execution_id == first.execution_id
        await app.worker(dsn=ff_dsn).run_until_idle()
        third = await client.submit(job.call("c"), unique=Unique("k"))
        assert third.created

        with pytest.raises(UniqueKeyTaken):
            await first.replay("again")
        await app.worker(dsn=ff_dsn).run_until_idle()
        await first.replay("again")
        fourth = await client.submit(job.call("d"), unique=Unique("k"))
        assert fourth.execution_id == first.execution_id


async def test_the_newest_may_win(ff_dsn: str) -> None:
    async with await Client.connect(ff_dsn) as client:
        older = await client.submit(job.call("a"), unique=Unique("k"))
        newer = await client.submit(job.call("b"), unique=Unique("k", on_conflict="cancel_old"))

        assert newer.created
        assert await older.state() is PublicState.CANCELLED
        assert (await older.describe()).cancellation_reason == "superseded"


async def test_a_key_may_be_free_once_its_execution_has_started(ff_dsn: str) -> None:
    begun = App()

    @begun.task("nap")
    async def nap(ctx: Ctx) -> None:
        await ctx.sleep(3600)

    @begun.task("fails", retry=Retry(max_retries=1, initial=3600))
    async def fails(ctx: Ctx) -> None:
        raise OSError("no answer")

    async with await Client.connect(ff_dsn) as client:
        retried = await client.submit(fails.call(), unique=Unique("k"))
        first = await client.submit(nap.call(), unique=Unique("k", until="started"))
        assert not (await client.submit(nap.call(), unique=Unique("k", until="started"))).created
        await begun.worker(dsn=ff_dsn).run_until_idle()
        second = await client.submit(nap.call(), unique=Unique("k", until="started"))
        assert second.execution_id != first.execution_id
        assert await retried.state() is PublicState.DELAYED
        again = await client.submit(fails.call(), unique=Unique("k"))
        assert again.execution_id == retried.execution_id, "a retry has not ended"


async def test_submits_that_follow_soon_become_one_execution(ff_dsn: str, ff_clock: Clock) -> None:
    ran.clear()
    async with await Client.connect(ff_dsn) as client:
        first = await client.submit(job.call("a"), debounce=Debounce("k", wait=5, max_wait=12))
        for name in "bcd":
            await ff_clock.advance(4)
            again = await client.submit(job.call(name), debounce=Debounce("k", wait=5, max_wait=12))
            assert again.execution_id == first.execution_id
        await app.worker(dsn=ff_dsn).run_until_idle()
        assert ran == ["d"], "12 seconds after the first, with the last payload"

        kept = Debounce("j", wait=5, payload="first")
        await client.submit(job.call("x"), debounce=kept)
        await client.submit(job.call("y"), debounce=kept)
        await ff_clock.advance(5)
        await app.worker(dsn=ff_dsn).run_until_idle()
        assert ran == ["d", "x"]
        assert (await client.submit(job.call("z"), debounce=Debounce("k"))).created


async def test_a_submit_does_not_change_an_execution_that_has_started(
    ff_dsn: str, ff_clock: Clock
) -> None:
    begun = App()

    @begun.task("nap")
    async def nap(ctx: Ctx, name: str) -> str:
        await ctx.sleep(3600)
        return name

    settled = Debounce("k", wait=5)
    async with await Client.connect(ff_dsn) as client:
        first = await client.submit(nap.call("a"), debounce=settled)
        await ff_clock.advance(5)
        await begun.worker(dsn=ff_dsn).run_until_idle()
        assert await first.state() is PublicState.DELAYED, "it sleeps"

        second = await client.submit(nap.call("b"), debounce=settled)
        assert second.execution_id != first.execution_id
        for _ in range(2):
            await ff_clock.advance(3600)
            await begun.worker(dsn=ff_dsn).run_until_idle()
        assert [await first.result(5), await second.result(5)] == ["a", "b"]


@all_cases(
    "wrong",
    [
        lambda: Unique(""),
        lambda: Unique(1),  # type: ignore[arg-type]
        lambda: Unique("k", until="never"),  # type: ignore[arg-type]
        lambda: Unique("k", on_conflict="error"),  # type: ignore[arg-type]
        lambda: Debounce("k", wait=0),
        lambda: Debounce("k", wait=-1),
        lambda: Debounce("k", wait="5"),  # type: ignore[arg-type]
        lambda: Debounce("k", wait=5, max_wait=4),
        lambda: Debounce("k", payload="middle"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_are_not_valid_are_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError):
        wrong()


async def test_options_that_do_not_go_together_are_refused(ff_dsn: str) -> None:
    async with await Client.connect(ff_dsn) as client:
        for options in (
            {"unique": "k"},
            {"unique": Unique("k"), "idempotency_key": "x"},
            {"unique": Unique("k"), "debounce": Debounce("k")},
            {"debounce": Debounce("k"), "delay": 5},
        ):
            with pytest.raises(ValidationError):
                await client.submit(job.call("a"), **options)  # type: ignore[arg-type]
        with pytest.raises(ValidationError, match="unique is for submit"):
            await client.submit_many([job.call("a")], unique=Unique("k"))
        with pytest.raises(ValidationError, match="unique must have a text as its key"):
            await client.submit(job.call("a"), unique=Unique(lambda name: name))
        assert (await client.search()).executions == []
        with SyncClient.connect(ff_dsn) as sync:
            with pytest.raises(ValidationError, match="debounce is for submit"):
                sync.submit_many([job.call("a"), job.call("b")], debounce=Debounce("k"))
            one = sync.submit(job.call("a"), unique=Unique("k", on_conflict="cancel_old"))
            assert sync.submit(job.call("a"), unique=Unique("k")).execution_id == one.execution_id


keyed = App()


@keyed.task("once", unique=Unique(lambda name: name[0]))
async def once(ctx: Ctx, name: str) -> str:
    return name


@keyed.task("newest", unique=Unique(lambda name: name[0], on_conflict="cancel_old"))
async def newest(ctx: Ctx, name: str) -> str:
    return name


@keyed.task("settled", debounce=Debounce(lambda name: name[0], wait=5))
async def settled(ctx: Ctx, name: str) -> str:
    ran.append(name)
    return name


async def test_the_task_says_which_of_its_calls_are_one(ff_dsn: str, ff_clock: Clock) -> None:
    async with await Client.connect(ff_dsn) as client:
        a1, b1, a2 = await client.submit_many([once.call("a1"), once.call("b1"), once.call("a2")])
        assert [a1.created, b1.created, a2.created] == [True, True, False]
        assert a2.execution_id == a1.execution_id
        assert not (await client.submit(once.call("a3"))).created
        replaced = await client.submit(once.call("a4"), unique=Unique("mine"))
        assert replaced.created, "the option of the submit replaces that of the task"
        with pytest.raises(ValidationError, match="idempotency_key"):
            await client.submit(once.call("c"), idempotency_key="x")

        ran.clear()
        first = await client.submit(settled.call("a1"))
        again = await client.submit(settled.call("a2"))
        assert again.execution_id == first.execution_id
        await ff_clock.advance(5)
        await keyed.worker(dsn=ff_dsn).run_until_idle()
        assert ran == ["a2"]


async def test_of_many_calls_the_newest_of_a_key_wins(ff_dsn: str) -> None:
    async with await Client.connect(ff_dsn) as client:
        old = await client.submit(newest.call("a0"))
        calls = [newest.call("a1"), newest.call("b1"), once.call("z"), newest.call("a2")]
        a1, b1, z, a2 = await client.submit_many(calls)

        assert await old.state() is PublicState.CANCELLED
        assert (a1.execution_id, a1.created, a2.created) == (a2.execution_id, False, True)
        assert (b1.created, z.created) == (True, True)
        waiting = (await client.search(state="waiting")).executions
        assert {each.execution_id for each in waiting} == {
            a2.execution_id,
            b1.execution_id,
            z.execution_id,
        }


async def test_tasks_do_not_share_keys(ff_dsn: str) -> None:
    other = App()

    @other.task("other")
    async def another_job(ctx: Ctx, number: int) -> int:
        return number

    async with await Client.connect(ff_dsn) as client:
        for option in ({"unique": Unique("k")}, {"debounce": Debounce("k")}):
            one = await client.submit(job.call("a"), **option)  # type: ignore[arg-type]
            two = await client.submit(another_job.call(1), **option)  # type: ignore[arg-type]
            assert (one.created, two.created) == (True, True)


@pytest.mark.direct("conn= needs the database itself")
async def test_a_unique_call_may_be_part_of_the_callers_transaction(ff_dsn: str) -> None:
    async with await Client.connect(ff_dsn) as client:
        conn = await asyncpg.connect(ff_dsn)
        undone = conn.transaction()
        await undone.start()
        await client.submit(once.call("a"), conn=conn)
        await undone.rollback()
        async with conn.transaction():
            kept = await client.submit(once.call("a"), conn=conn)
        assert (await client.submit(once.call("a"))).execution_id == kept.execution_id
        for call in (newest.call("a"), settled.call("a")):
            with pytest.raises(ValidationError, match="conn does not go with"):
                await client.submit(call, conn=conn)
        await conn.close()


async def test_where_a_call_is_one_of_its_own_it_is_refused(ff_dsn: str) -> None:
    async def refused(make: Any, what: str) -> None:
        async def made() -> None:
            await make()

        with pytest.raises(ValidationError, match=what):
            await made()

    handlers = App()

    @handlers.task("parent")
    async def parent(ctx: Ctx) -> None:
        await refused(lambda: ctx.gather([once.call("a")]), "unique of task 'once' .* a child")
        await refused(lambda: ctx.spawn(settled.call("a")), "debounce of task 'settled' .* a child")
        await refused(lambda: ctx.compensate(once.call("a")), "unique of .* a compensation")

    async with await Client.connect(ff_dsn) as client:
        many = [settled.call("a"), once.call("b")]
        await refused(lambda: client.submit_many(many), "debounce does not go with many calls")
        flow = handlers.flow("f")
        await refused(lambda: flow.add(once.call("a")), "unique of .* a member of a flow")
        await refused(
            lambda: client.schedules.create("s", once.call("a"), every=60), "unique .* a schedule"
        )
        done = await client.submit(parent.call())
        await handlers.worker(dsn=ff_dsn).run_until_idle()
        assert await done.state() is PublicState.COMPLETED


def test_the_settings_of_a_task_are_checked() -> None:
    for wrong, what in (
        ({"unique": "k"}, "must be a Unique"),
        ({"debounce": Unique("k")}, "must be a Debounce"),
        ({"unique": Unique("k"), "debounce": Debounce("k")}, "cannot be given with unique"),
    ):
        with pytest.raises(ConfigError, match=what):
            App().task("x", **wrong)  # type: ignore[arg-type]

    numbered = App().task("numbered", unique=Unique(lambda number: number))

    @numbered
    async def by_number(ctx: Ctx, number: int) -> None: ...

    with pytest.raises(ValidationError, match="unique key 7 of task 'numbered' must be text"):
        by_number.call(7)
    broken = App().task("broken", debounce=Debounce(lambda: 1 / 0))  # type: ignore[arg-type]

    @broken
    async def by_nothing(ctx: Ctx) -> None: ...

    with pytest.raises(ValidationError, match="debounce key of task 'broken' raised ZeroDivision"):
        by_nothing.call()
