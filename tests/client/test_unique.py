"""Unique and debounced submits: one execution of a key at a time."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric import App, Client, Ctx, Debounce, Unique, UniqueKeyTaken, ValidationError
from flowfabric.states import PublicState
from flowfabric.testing import Clock

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

    async with await Client.connect(ff_dsn) as client:
        first = await client.submit(nap.call(), unique=Unique("k", until="started"))
        assert not (await client.submit(nap.call(), unique=Unique("k", until="started"))).created
        await begun.worker(dsn=ff_dsn).run_until_idle()
        second = await client.submit(nap.call(), unique=Unique("k", until="started"))
        assert second.execution_id != first.execution_id


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


@pytest.mark.parametrize(
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
        with pytest.raises(ValidationError):
            await client.submit_many([job.call("a")], unique=Unique("k"))
        assert (await client.search()).executions == []
