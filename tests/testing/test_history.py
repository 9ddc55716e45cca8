"""Histories of executions are replayed by code that has changed since, or has not."""

from pathlib import Path

import pytest

from flowfabric import App, Client, Ctx
from flowfabric.engine import Engine
from flowfabric.errors import NonDeterministicReplay
from flowfabric.testing import History, assert_replays, crash_after, record_history

runs: list[str] = []


async def note(name: str) -> str:
    runs.append(name)
    return name


def shop(*steps: str, then: str | None = None) -> App:
    """An app whose task runs these steps, waits for a signal, and then runs another one."""
    app = App()

    @app.task("order")
    async def order(ctx: Ctx, number: int) -> int:
        for step in steps:
            await ctx.step(step, note, step)
        await ctx.wait_for_signal("paid")
        if then is not None:
            await ctx.step(then, note, then)
        return number

    return app


@pytest.fixture
async def history(ff_dsn: str, ff_engine: Engine) -> History:
    app = shop("reserve", "charge")
    runs.clear()
    async with await Client.connect(ff_dsn) as client:
        handle = await client.submit(app.tasks["order"].call(1))
        await app.worker(dsn=ff_dsn).run_until_idle()
        return await record_history(ff_engine, handle.execution_id)


async def test_the_same_code_replays_and_runs_no_step(history: History) -> None:
    runs.clear()

    await assert_replays(shop("reserve", "charge").tasks["order"], history)

    assert runs == []


async def test_code_that_goes_on_otherwise_replays(history: History) -> None:
    await assert_replays(shop("reserve", "charge", then="ship").tasks["order"], history)


@pytest.mark.parametrize("steps", [("reserve", "bill"), ("reserve",), ("charge",)])
async def test_code_that_makes_other_calls_is_told(history: History, steps: tuple[str]) -> None:
    with pytest.raises(NonDeterministicReplay, match="charge#0"):
        await assert_replays(shop(*steps).tasks["order"], history)


async def test_a_history_is_the_same_from_a_file(history: History, tmp_path: Path) -> None:
    history.save(tmp_path / "order.json")

    assert History.load(tmp_path / "order.json") == history


async def test_a_step_before_a_crash_does_not_run_again(ff_dsn: str) -> None:
    app = shop("reserve", "charge")
    runs.clear()
    async with await Client.connect(ff_dsn) as client:
        handle = await client.submit(app.tasks["order"].call(1))
        with crash_after("reserve") as crashes:
            await app.worker(dsn=ff_dsn, lease_ttl=1).run_until_idle()

        assert crashes.count == 1
        assert runs == ["reserve", "charge"]
        assert (await handle.state()).value == "suspended"
