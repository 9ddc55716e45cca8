"""`@app.schedule`: what an application defines, and what is refused when it is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flowfabric import App, Call, ConfigError, Ctx, Retry
from flowfabric.app.schedule import define_schedule, redefine_schedule
from flowfabric.errors import ValidationError
from flowfabric.states import ScheduleSource
from tests.all_cases import all_cases


def shop() -> App:
    app = App(namespace="shop")

    @app.task("rebuild", lane="slow", retry=Retry(max_retries=2), priority=3, requires={"big"})
    async def rebuild(ctx: Ctx, full: bool = False) -> None: ...

    return app


def call_of(app: App, **arguments: Any) -> Call[Any]:
    return app.tasks["rebuild"].call(**arguments)


def test_a_schedule_has_the_settings_of_its_task_and_its_own() -> None:
    app = shop()
    called: list[int] = []

    @app.schedule(
        "nightly",
        cron="0 2 * * *",
        tz="Europe/Berlin",
        overlap="queue_one",
        jitter=60,
        priority=9,
        tags={"shop.area": "search"},
    )
    def nightly() -> Call[Any]:
        called.append(1)
        return call_of(app, full=True)

    assert called == [], "the function is called when the schedule is stored"
    [definition] = app.schedule_definitions()

    assert callable(nightly)
    assert (definition.name, definition.namespace) == ("nightly", "shop")
    assert str(definition.spec) == "0 2 * * * (Europe/Berlin)"
    assert (definition.execution_kind, definition.lane_id, definition.priority) == (
        "rebuild",
        "slow",
        9,
    )
    assert definition.input_payload == b'{"full":true}'
    assert definition.required_capabilities == ("big",)
    assert definition.policy == app.tasks["rebuild"].policy
    assert definition.jitter == timedelta(minutes=1)
    assert definition.source is ScheduleSource.CODE


@all_cases(
    ("name", "options", "said"),
    [
        ("", {"cron": "@daily"}, "schedule: name: name '' must not be empty"),
        ("n", {}, "schedule: n: schedule needs one of cron, every and at"),
        ("n", {"cron": "0 0 30 2 *"}, "schedule: n: cron '0 0 30 2 *'"),
        ("n", {"cron": "@daily", "tz": "Mars"}, "schedule: n: tz 'Mars' is not the name"),
        ("n", {"every": 0.5}, "schedule: n: every 0.5 must be at least 1 second"),
        ("n", {"cron": "@daily", "overlap": "maybe"}, "overlap 'maybe' is not one of"),
        ("n", {"cron": "@daily", "when": 3}, "option 'when' is unknown; the options are cron, tz"),
        ("n", {"cron": "@daily", "until": datetime(2027, 1, 1)}, "must have a time zone"),
    ],
)
def test_what_is_wrong_is_said_where_it_is_written(
    name: str, options: dict[str, Any], said: str
) -> None:
    app = shop()

    with pytest.raises(ConfigError) as refused:
        app.schedule(name, **options)(lambda: call_of(app))

    assert said in str(refused.value)
    assert app.schedules == {}


def test_a_name_is_defined_once() -> None:
    app = shop()
    app.schedule("n", cron="@daily")(lambda: call_of(app))

    with pytest.raises(ConfigError, match="n: is defined already"):
        app.schedule("n", cron="@hourly")(lambda: call_of(app))


def test_a_function_that_returns_no_call_is_named() -> None:
    app = shop()
    app.schedule("n", cron="@daily")(lambda: app.tasks["rebuild"])  # pyright: ignore

    with pytest.raises(ConfigError, match=r"schedule: n: call .* must be a call: write rebuild"):
        app.schedule_definitions()


def test_what_is_not_given_stays() -> None:
    app = shop()
    begin = datetime(2027, 1, 1, tzinfo=UTC)
    old = define_schedule("n", call_of(app), namespace="shop", cron="@daily", catch_up=3, lane="x")

    moved = redefine_schedule(old, None, tz="Europe/Berlin", overlap="allow")
    other = redefine_schedule(old, call_of(app, full=True), every=60, starts=begin)

    assert str(moved.spec) == "@daily (Europe/Berlin)"
    assert (moved.catch_up, moved.lane_id, moved.overlap) == (3, "x", "allow")
    assert (other.spec.every, other.spec.anchor) == (timedelta(minutes=1), begin)
    assert (other.input_payload, other.lane_id) == (b'{"full":true}', "slow")
    with pytest.raises(ValidationError, match="option 'wen' is unknown"):
        redefine_schedule(old, None, wen=3)  # pyright: ignore
