"""Overrides: while one is open, handlers are given what the fake makes."""

import os
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest

from flowfabric import App, Client, ConfigError, Ctx, Depends
from tests.app.busy import app as busy_app
from tests.app.busy import price as busy_price
from tests.app.busy import priced
from tests.app.test_depends import result_of


def price() -> str:
    return "real"


def label(price: str = Depends(price)) -> str:
    return f"label of {price}"


def shop(*, scope: Any = "task") -> Any:
    """An app with one task that uses the price, and the task."""
    app = App()

    @app.task("sell")
    async def sell(
        ctx: Ctx,
        price: str = Depends(price, scope=scope),
        label: str = Depends(label, scope=scope),
    ) -> str:
        return f"{price}, {label}"

    return app, sell


def plain() -> str:
    return "fake"


async def asynchronous() -> str:
    return "fake"


def generator() -> Generator[str]:
    yield "fake"


async def async_generator() -> AsyncGenerator[str]:
    yield "fake"


def of_the_context(ctx: Ctx) -> str:
    return "fake" if ctx.kind == "sell" else "lost"


def of_another(made: str = Depends(asynchronous)) -> str:
    return made


@pytest.mark.parametrize(
    "fake", [plain, asynchronous, generator, async_generator, of_the_context, of_another]
)
@pytest.mark.parametrize("scope", ["task", "process"])
async def test_a_fake_stands_in_also_below_another_dependency(
    client: Client, ff_dsn: str, fake: Callable[..., Any], scope: str
) -> None:
    app, sell = shop(scope=scope)

    with app.override(price, fake):
        inside = await result_of(client, ff_dsn, app, sell.call())
    after = await result_of(client, ff_dsn, app, sell.call())

    assert inside == "fake, label of fake"
    assert after == "real, label of real"


async def test_the_innermost_override_counts_and_leaving_a_block_restores_the_one_before(
    client: Client, ff_dsn: str
) -> None:
    app, sell = shop()

    with app.override(price, lambda: "outer"):
        with app.override(price, lambda: "inner"), app.override(label, lambda: "a label"):
            inner = await result_of(client, ff_dsn, app, sell.call())
        outer = await result_of(client, ff_dsn, app, sell.call())

    assert inner == "inner, a label"
    assert outer == "outer, label of outer"


async def test_overrides_may_end_in_any_order(client: Client, ff_dsn: str) -> None:
    app, sell = shop()
    first, second = app.override(price, lambda: "first"), app.override(price, lambda: "second")

    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)

    assert await result_of(client, ff_dsn, app, sell.call()) == "second, label of second"
    second.__exit__(None, None, None)
    assert await result_of(client, ff_dsn, app, sell.call()) == "real, label of real"


async def test_an_override_ends_when_the_block_raises(client: Client, ff_dsn: str) -> None:
    app, sell = shop()

    with pytest.raises(RuntimeError, match="broken"), app.override(price, plain):
        raise RuntimeError("broken")

    assert await result_of(client, ff_dsn, app, sell.call()) == "real, label of real"


async def test_a_running_worker_uses_a_fake_although_it_has_made_the_real_one(
    client: Client, ff_dsn: str
) -> None:
    app, sell = shop(scope="process")

    async def sold() -> str:
        return await (await client.submit(sell.call())).result(timeout=10)

    async with app.worker(dsn=ff_dsn):
        before = await sold()
        with app.override(price, plain):
            inside = await sold()
        after = await sold()

    assert (before, inside, after) == (
        "real, label of real",
        "fake, label of fake",
        "real, label of real",
    )


async def test_a_fake_of_the_process_is_made_once_for_each_override(
    client: Client, ff_dsn: str
) -> None:
    app, sell = shop(scope="process")
    made: list[str] = []

    def fake() -> Generator[str]:
        made.append("made")
        yield "fake"
        made.append("cleaned up")

    async with app.worker(dsn=ff_dsn):
        for _ in range(2):
            with app.override(price, fake):
                handles = await client.submit_many([sell.call(), sell.call()])
                for handle in handles:
                    await handle.result(timeout=10)
        assert made == ["made", "made"]

    assert made == ["made", "made", "cleaned up", "cleaned up"]


async def test_a_fake_may_depend_on_what_it_replaces(client: Client, ff_dsn: str) -> None:
    app, sell = shop()

    def discounted(price: str = Depends(price)) -> str:
        return f"half of {price}"

    with app.override(price, discounted):
        assert await result_of(client, ff_dsn, app, sell.call()) == (
            "half of real, label of half of real"
        )


async def test_a_task_of_a_child_process_runs_in_the_worker_while_its_dependency_is_overridden(
    client: Client, ff_dsn: str
) -> None:
    with busy_app.override(busy_price, plain):
        inside = await result_of(client, ff_dsn, busy_app, priced.call())
    after = await result_of(client, ff_dsn, busy_app, priced.call())

    assert inside == ("fake", os.getpid())
    assert after[0] == "real"
    assert after[1] != os.getpid()


def test_what_no_task_depends_on_is_refused() -> None:
    app, _ = shop()

    with pytest.raises(ConfigError, match="no task of this app depends on"):
        app.override(plain, price)


async def test_what_only_a_fake_depends_on_can_be_overridden(client: Client, ff_dsn: str) -> None:
    app, sell = shop()

    with app.override(price, of_another), app.override(asynchronous, lambda: "deep"):
        assert await result_of(client, ff_dsn, app, sell.call()) == "deep, label of deep"


def test_a_fake_with_a_parameter_that_nothing_provides_is_refused() -> None:
    app, _ = shop()

    def needs(other: str) -> str:
        return other

    with pytest.raises(ConfigError, match="nothing provides parameter 'other'"):
        app.override(price, needs)
