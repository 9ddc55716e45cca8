"""`client.schedules`, its blocking twin, and a worker that fires what is due."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from inspect import signature

import pytest

from flowfabric import App, Call, Client, ConfigError, Ctx, NotFound, ValidationError
from flowfabric.client.schedules import Schedules as AsyncSchedules
from flowfabric.db.rows import Connection
from flowfabric.errors import ScheduleAlreadyExists
from flowfabric.states import ScheduleState
from flowfabric.sync import Client as SyncClient
from flowfabric.sync import Schedules
from flowfabric.testing import Clock
from tests.engine.schedules.stored import BEGIN, HOUR

app = App()
seen: list[tuple[str, datetime | None]] = []


@app.task("digest")
async def digest(ctx: Ctx, to: str) -> None:
    seen.append((to, ctx.scheduled_at))


@app.schedule(
    "nightly",
    cron="0 2 * * *",
    tz="Europe/Berlin",
    overlap="allow",
    catch_up=2,
    catch_up_window=timedelta(days=2),
)
def nightly() -> Call[None]:
    return digest.call("everybody")


async def test_a_schedule_is_created_changed_and_deleted(client: Client, clock: Clock) -> None:
    await clock.set(BEGIN)
    every = timedelta(minutes=15)
    made = await client.schedules.create("acme", digest.call("acme"), every=every)
    assert await client.schedules.create("acme", digest.call("acme"), every=every) == made
    with pytest.raises(ScheduleAlreadyExists, match="exists with another input_payload"):
        await client.schedules.create("acme", digest.call("other"), every=every)

    changed = await client.schedules.update("acme", digest.call("Acme"), catch_up=4)
    assert (changed.definition.catch_up, changed.definition.spec.every) == (4, every)
    assert changed.definition.input_payload == b'{"to":"Acme"}'
    assert (await client.schedules.pause("acme", "repairs")).state is ScheduleState.PAUSED
    assert (await client.schedules.resume("acme")).state is ScheduleState.ACTIVE
    assert (await client.schedules.trigger("acme")).execution_id is not None
    assert (await client.schedules.trigger("acme")).outcome == "skipped"
    await clock.advance(HOUR)
    filled = await client.schedules.backfill("acme", BEGIN, BEGIN + HOUR)
    assert len(filled.executions) == 4
    assert await client.schedules.preview("acme", 2) == [BEGIN + every, BEGIN + 2 * every]
    words = [each.outcome.value for each in await client.schedules.history("acme")]
    assert sorted(words) == [*["backfilled"] * 4, "skipped", "triggered"]
    assert (await client.schedules.explain("acme")).state is ScheduleState.ACTIVE
    assert [each.name for each in (await client.schedules.list()).schedules] == ["acme"]
    await client.schedules.delete("acme")
    with pytest.raises(NotFound):
        await client.schedules.get("acme")
    with pytest.raises(ValidationError, match="call 7 must be a call"):
        await client.schedules.create("acme", 7, every=60)  # pyright: ignore


async def test_an_application_is_compared_and_synced(client: Client, clock: Clock) -> None:
    await clock.set(BEGIN)

    assert (await client.schedules.diff(app)).missing == ["nightly"]
    assert (await client.schedules.sync(app)).missing == ["nightly"]
    assert (await client.schedules.diff(app)).is_empty
    assert (await client.schedules.sync(App(), prune=True)).orphans == ["nightly"]
    assert (await client.schedules.list()).schedules == []
    with pytest.raises(ValidationError, match="namespace of the app 'other' is not that of"):
        await client.schedules.sync(App(namespace="other"))


async def test_a_schedule_of_a_task_with_a_limit_has_the_limit(client: Client) -> None:
    limited = App()
    per_customer = limited.limit("per-customer", concurrency=1)

    @limited.task("bill", limit=per_customer, limit_key=lambda customer: customer)
    async def bill(ctx: Ctx, customer: str) -> None: ...

    limited.schedule("all", cron="@daily")(lambda: bill.call("c-1"))
    await client.schedules.create("c-7", bill.call("c-7"), every=60)
    await client.schedules.sync(limited)

    for name, key in (("c-7", "c-7"), ("all", "c-1")):
        made = (await client.schedules.trigger(name)).execution_id
        assert made is not None
        stored = (await client.schedules.get(name)).definition
        assert (stored.limit, stored.limit_key) == ("per-customer", key)
    with pytest.raises(ValidationError, match="overlap 'queue_one' has limit 'per-customer'"):
        await client.schedules.update("c-7", overlap="queue_one")


async def test_a_worker_creates_what_is_missing_and_runs_what_is_due(
    client: Client, clock: Clock, ff_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen.clear()
    await clock.set(BEGIN)
    with caplog.at_level(logging.INFO, "flowfabric.schedules"):
        await app.worker(dsn=ff_dsn).run_until_idle()
    assert "created schedules: nightly" in caplog.text
    assert seen == []
    await clock.set(BEGIN + 25 * HOUR)

    await app.worker(dsn=ff_dsn).run_until_idle()

    assert seen == [("everybody", BEGIN + HOUR), ("everybody", BEGIN + 25 * HOUR)]
    assert (await client.schedules.get("nightly")).fired == 2


async def test_a_worker_that_finds_another_definition_says_so_and_leaves_it(
    client: Client, clock: Clock, ff_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    await clock.set(BEGIN)
    await client.schedules.sync(app)
    await client.schedules.update("nightly", cron="0 3 * * *")

    await app.worker(dsn=ff_dsn).run_until_idle()

    assert "nightly is stored otherwise than the application defines it" in caplog.text
    assert "cron: 0 3 * * * → 0 2 * * *" in caplog.text
    assert "ff schedules sync" in caplog.text
    assert (await client.schedules.get("nightly")).definition.spec.cron == "0 3 * * *"


async def test_a_worker_does_not_start_with_a_schedule_that_cannot_be_stored(
    ff_dsn: str, db: Connection
) -> None:
    odd = App()
    odd.task("digest")(digest.function)
    odd.schedule("odd", cron="@daily")(lambda: 1 / 0)  # pyright: ignore

    with pytest.raises(ConfigError, match="schedule: odd: ZeroDivisionError"):
        await odd.worker(dsn=ff_dsn).run_until_idle()

    assert await db.fetchval("SELECT count(*) FROM ff.schedule") == 0


async def test_an_execution_without_a_schedule_has_no_instant(client: Client, ff_dsn: str) -> None:
    seen.clear()
    await client.submit(digest.call("ann"))

    await app.worker(dsn=ff_dsn).run_until_idle()

    assert seen == [("ann", None)]


async def test_the_blocking_client_has_the_same_calls(ff_dsn: str) -> None:
    def script() -> None:
        with SyncClient.connect(ff_dsn) as client:
            client.schedules.create("acme", digest.call("acme"), cron="@hourly")
            assert client.schedules.get("acme").definition.execution_kind == "digest"
            client.schedules.pause("acme", "repairs")
            assert client.schedules.list(state="paused").schedules[0].state_reason == "repairs"

    await asyncio.to_thread(script)
    for name in vars(AsyncSchedules):
        if not name.startswith("_"):
            twin = signature(getattr(Schedules, name)).parameters
            assert list(twin) == list(signature(getattr(AsyncSchedules, name)).parameters)
