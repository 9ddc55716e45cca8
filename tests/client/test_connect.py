"""Connecting: what is missing or wrong is said at once, without the password."""

from typing import Any

import pytest

from flowfabric import App, Client, ConfigError, TransportError, Unavailable

pytestmark = pytest.mark.timeout(30)


async def test_without_a_dsn_the_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FF_DATABASE_URL", raising=False)

    with pytest.raises(ConfigError, match="FF_DATABASE_URL"):
        await Client.connect()


async def test_the_dsn_may_come_from_the_environment(
    ff_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FF_DATABASE_URL", ff_dsn)

    async with await Client.connect() as client:
        assert (await client.search()).executions == []


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://ann:hunter2@127.0.0.1:1/shop",
        "postgresql://ann:hunter2@no-such-host.invalid/shop",
        "postgresql:///shop?host=/nowhere&user=ann&password=hunter2",
        "postgresql://127.0.0.1:1/shop?user=ann&password=hunter2",
    ],
)
async def test_a_database_that_does_not_answer_is_named_without_the_password(dsn: str) -> None:
    with pytest.raises(TransportError) as unreachable:
        await Client.connect(dsn)

    assert "shop" in str(unreachable.value)
    assert "hunter2" not in str(unreachable.value)
    assert "hunter2" not in repr(unreachable.value)
    assert unreachable.value.retryable


@pytest.mark.parametrize(
    "dsn",
    [
        "mysql://ann:hunter2@localhost/shop",
        "shop",
        "postgresql://ann:hunter2@localhost:port/shop",
    ],
)
async def test_what_is_no_dsn_is_refused_without_the_password(dsn: str) -> None:
    with pytest.raises(ConfigError) as refused:
        await Client.connect(dsn)

    assert "hunter2" not in str(refused.value)


async def test_a_database_without_the_schema_says_how_to_make_it(ff_server: Any) -> None:
    empty = await ff_server.create_empty()
    try:
        with pytest.raises(Unavailable, match="ff migrate"):
            await Client.connect(empty)
    finally:
        await ff_server.drop(empty)


async def test_a_database_that_does_not_exist_is_unavailable(ff_server: Any) -> None:
    with pytest.raises(Unavailable, match="no_such_database"):
        await Client.connect(ff_server.dsn_of("no_such_database"))


async def test_a_pool_of_one_serves_everything(ff_dsn: str) -> None:
    app = App()
    task = app.task("job")(lambda ctx: None)

    async with await Client.connect(ff_dsn, pool_size=1) as client:
        handles = await client.submit_many([task.call(), task.call()])
        await app.worker(dsn=ff_dsn).run_until_idle()
        assert [await handle.result(timeout=10) for handle in handles] == [None, None]


async def test_behind_a_transaction_pooler_everything_works_by_polling(ff_dsn: str) -> None:
    app = App()
    task = app.task("job")(lambda ctx: None)

    async with await Client.connect(ff_dsn, pooler=True) as client:
        handle = await client.submit(task.call())
        await app.worker(dsn=ff_dsn, pooler=True).run_until_idle()
        assert await handle.result(timeout=10) is None
