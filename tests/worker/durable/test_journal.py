"""Replay: what is recorded, divergences, versions and limits."""

import asyncio
from typing import Any

import msgspec
import pytest

from flowfabric import (
    App,
    Ctx,
    ExecutionFailed,
    NonDeterministicReplay,
    Retry,
)
from flowfabric.counters import UNVISITED_ENTRIES
from flowfabric.errors import EntryDecodeError
from flowfabric.testing import Clock
from tests.worker.durable.lab import Lab

pytestmark = pytest.mark.timeout(60)


def step_of(lab: Lab, name: str) -> Any:
    async def body() -> str:
        lab.did.append(name)
        return name

    return body


async def replayed(
    lab: Lab, clock: Clock, first: list[str], second: list[str], **settings: Any
) -> Any:
    """A handler that makes the steps of `first`, sleeps, and runs again with those of `second`."""
    steps = [first]

    @lab.app.task("job", **settings)
    async def job(ctx: Ctx) -> str:
        for name in steps[0]:
            if name == "sleep":
                await ctx.sleep(60)
            else:
                await ctx.step(name, step_of(lab, name))
        return "done"

    handle = await lab.submitted(job.call())
    lab.did.clear()
    steps[0] = second
    await clock.advance(60)
    await lab.run()
    return handle


async def test_a_step_that_was_renamed_is_found_before_it_runs_a_second_time(
    lab: Lab, clock: Clock
) -> None:
    handle = await replayed(lab, clock, ["charge", "mail", "sleep"], ["pay", "mail", "sleep"])

    assert lab.did == []
    assert await lab.state(handle) == "suspended"
    row = await lab.row(handle)
    assert row["blocking_reason"] == "paused_by_operator"
    detail = row["blocking_detail"]
    assert detail.startswith("divergence: ")
    assert "recorded: charge#0, mail#0, sleep#0" in detail
    assert "asked: pay#0" in detail
    assert (row["attempt_index"], row["retry_count"]) == (0, 0)


async def test_of_long_sequences_ten_before_and_ten_after_the_difference_are_shown(
    lab: Lab, clock: Clock
) -> None:
    recorded = [f"s{number}" for number in range(40)]
    changed = [*recorded[:25], "new"]

    handle = await replayed(lab, clock, [*recorded, "sleep"], [*changed, "sleep"])

    detail = await lab.detail(handle)
    before, _, asked = detail.partition("asked: ")
    shown = [f"s{number}#0" for number in range(15, 35)]
    assert f"recorded: {', '.join(shown)}" in before
    assert "s14#0" not in before
    assert "s35#0" not in before
    asked = asked.partition(";")[0].split(")")[0]
    assert asked.split(", ")[-1].startswith("new#0")
    assert len(asked.split(", ")) <= 20


async def test_an_instant_that_is_not_asked_for_again_is_no_divergence(
    lab: Lab, clock: Clock
) -> None:
    asks = [True]

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        if asks[0]:
            ctx.now()
        await ctx.sleep(60)
        return await ctx.step("mail", step_of(lab, "mail"))

    handle = await lab.submitted(job.call())
    assert await lab.journal(handle) == ["now#0 done", "sleep#0 open"]
    asks[0] = False
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "mail"


async def test_an_operator_resumes_it_after_the_right_code_is_there(lab: Lab, clock: Clock) -> None:
    handle = await replayed(lab, clock, ["charge", "sleep"], ["pay", "sleep"])
    lab.app = App()

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        charged = await ctx.step("charge", step_of(lab, "charge"))
        await ctx.sleep(60)
        return charged

    await lab.engine.resume_execution(handle.execution_id)
    await lab.run()

    assert await handle.result(5) == "charge"
    assert lab.did == []


async def test_a_divergence_decides_even_if_the_handler_swallows_it(lab: Lab, clock: Clock) -> None:
    runs: list[int] = []

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        runs.append(1)
        if len(runs) == 1:
            await ctx.step("charge", step_of(lab, "charge"))
            await ctx.sleep(60)
        for _ in range(2):
            try:
                await ctx.step("pay", step_of(lab, "pay"))
            except NonDeterministicReplay:
                lab.did.append("told")
        return "as if nothing had happened"

    handle = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()

    assert lab.did == ["charge", "told", "told"]
    assert await lab.state(handle) == "suspended"


async def test_a_divergence_decides_although_the_handler_has_a_transaction(
    lab: Lab, clock: Clock
) -> None:
    await lab.db.execute("CREATE TABLE public.orders (id int)")
    runs: list[int] = []

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        runs.append(1)
        await ctx.step("charge" if len(runs) == 1 else "pay", step_of(lab, "x"))
        if len(runs) == 1:
            await ctx.sleep(60)

    @lab.app.middleware
    async def swallows(ctx: Ctx, call_next: Any) -> Any:
        try:
            return await call_next()
        except NonDeterministicReplay:
            conn = await ctx.transaction()
            await conn.execute("INSERT INTO public.orders VALUES (1)")
            return None

    handle = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()

    assert await lab.state(handle) == "suspended"
    assert await lab.db.fetchval("SELECT count(*) FROM public.orders") == 0


async def test_a_task_may_fail_by_a_divergence_and_is_not_retried(lab: Lab, clock: Clock) -> None:
    handle = await replayed(
        lab,
        clock,
        ["charge", "sleep"],
        ["pay", "sleep"],
        on_divergence="fail",
        retry=Retry(max_retries=3, initial=0),
    )

    with pytest.raises(ExecutionFailed) as failed:
        await handle.result(5)
    assert failed.value.category == "non_deterministic_replay"


async def test_a_key_that_was_recorded_as_another_kind_is_a_divergence_at_once(
    lab: Lab, clock: Clock
) -> None:
    runs: list[int] = []

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        runs.append(1)
        if len(runs) == 1:
            await ctx.step("pause", step_of(lab, "pause"))
        else:
            await ctx.sleep("pause", 60)
        await ctx.sleep(60)

    handle = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()

    assert "pause#0 as sleep" in await lab.detail(handle)
    assert "pause#0 as step" in await lab.detail(handle)


async def test_steps_told_apart_by_their_place_alone_must_have_the_same_arguments(
    lab: Lab, clock: Clock
) -> None:
    pages = ["a", "b"]

    async def fetch(page: str) -> str:
        return page

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[str]:
        found = [await ctx.step("fetch", fetch, page) for page in pages]
        await ctx.sleep(60)
        return found

    handle = await lab.submitted(job.call())
    pages.reverse()
    await clock.advance(60)
    await lab.run()

    assert "fetch#0 with other arguments" in await lab.detail(handle)


async def test_a_step_of_one_occurrence_or_with_a_key_may_get_other_arguments(
    lab: Lab, clock: Clock
) -> None:
    arguments = ["old"]

    async def fetch(page: str) -> str:
        return page

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[str]:
        found = [
            await ctx.step("one", fetch, arguments[0]),
            await ctx.step("many", fetch, arguments[0], key="a"),
            await ctx.step("many", fetch, arguments[0], key="b"),
        ]
        await ctx.sleep(60)
        return found

    handle = await lab.submitted(job.call())
    arguments[0] = "new"
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == ["old", "old", "old"]


async def test_a_set_among_the_arguments_has_no_order_that_could_have_changed(
    lab: Lab, clock: Clock
) -> None:
    numbers = [{8, 0}]  # in the order 8, 0, as another process may have texts in another order

    async def tally(numbers: dict[str, set[int]]) -> int:
        return len(numbers["all"])

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[int]:
        found = [await ctx.step("tally", tally, {"all": numbers[0]}) for _ in range(2)]
        await ctx.sleep(60)
        return found

    handle = await lab.submitted(job.call())
    numbers[0] = {0, 8}
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == [2, 2]


async def test_branches_beside_each_other_catch_up_before_anything_new_runs(
    lab: Lab, clock: Clock
) -> None:
    waits = [0.0]

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        async def slow() -> None:
            await asyncio.sleep(waits[0])  # of its own: repeated in every run
            lab.did.append("visited")
            await ctx.step("slow", step_of(lab, "slow"))

        async def quick() -> None:
            await ctx.sleep(60)
            await ctx.step("new", step_of(lab, "new"))

        await asyncio.gather(slow(), quick())
        return "done"

    handle = await lab.submitted(job.call())
    lab.did.clear()
    waits[0] = 0.2
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "done"
    assert lab.did == ["visited", "new"]


async def test_a_call_that_waits_until_others_have_caught_up_keeps_the_attempt_up(
    lab: Lab, clock: Clock
) -> None:
    waits = [0.0]

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        async def slow() -> None:
            await asyncio.sleep(waits[0])  # of its own, and far longer than a park takes to begin
            await ctx.step("slow", step_of(lab, "slow"))

        async def quick() -> None:
            await ctx.sleep("nap", 60)
            await ctx.step("new", step_of(lab, "new"))

        await asyncio.gather(slow(), quick(), ctx.wait_for_signal("never"))

    handle = await lab.submitted(job.call())
    lab.did.clear()
    waits[0] = 0.3
    await clock.advance(60)
    await lab.run()

    assert lab.did == ["new"]
    assert (await lab.row(handle))["lease_epoch"] == 2, "it was not parked in between"
    assert await lab.state(handle) == "suspended"


async def test_by_name_runs_what_is_new_and_ignores_what_is_left(
    lab: Lab, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    handle = await replayed(
        lab, clock, ["old", "kept", "sleep"], ["new", "kept", "sleep"], replay="by_name"
    )

    assert await handle.result(5) == "done"
    assert lab.did == ["new"]
    [told] = [text for text in caplog.messages if "without calls that are recorded" in text]
    assert "old#0" in told


async def test_a_handler_that_returns_while_entries_are_left_is_only_logged_and_counted(
    lab: Lab, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    counted = UNVISITED_ENTRIES.values[("job",)]
    handle = await replayed(lab, clock, ["charge", "sleep"], [])

    assert await handle.result(5) == "done"
    assert any("charge#0" in text for text in caplog.messages)
    assert UNVISITED_ENTRIES.values[("job",)] == counted + 2


class V1(msgspec.Struct):
    number: int


class V2(msgspec.Struct):
    text: str


async def test_a_recorded_value_that_does_not_decode_any_more_is_a_divergence(
    lab: Lab, clock: Clock
) -> None:
    kinds: list[Any] = [V1]

    async def make() -> Any:
        return {"number": 1}

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        try:
            await ctx.step("make", make, returns=kinds[0])
        except EntryDecodeError as error:
            lab.did.append((error.name, error.wanted))
        await ctx.sleep(60)

    handle = await lab.submitted(job.call())
    kinds[0] = V2
    await clock.advance(60)
    await lab.run()

    assert lab.did == [("make", "V2")]
    assert await lab.state(handle) == "suspended"
    assert "'make'" in await lab.detail(handle)
