"""A submit that only a worker elsewhere could run is warned about once, in the background."""

import asyncio
import logging

import pytest

from flowfabric import App, Client, Ctx
from flowfabric import sync as blocking
from flowfabric.db.rows import Connection
from tests.engine.executions.explained import worker

app = App()


@app.task("x")
async def task(ctx: Ctx) -> None: ...


@app.task("nowhere")
async def nowhere(ctx: Ctx) -> None: ...


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


async def test_a_kind_that_is_served_in_another_namespace_only_is_warned_about_once(
    ff_dsn: str, db: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await worker(db, "w-1", namespace="b", kinds=["x"])

    async with await Client.connect(ff_dsn, namespace="a") as client:
        await client.submit(task.call())
        await client.submit_many([task.call(), nowhere.call()])
        await client.submit(task.call())
        flow = app.flow("f")
        flow.add(task.call(), lane="mail")
        await client.start(flow)

    assert warnings(caplog) == [
        f"no live worker serves kind 'x' on lane '{lane}' in namespace 'a'; "
        "worker w-1 serves it " + where + "; the execution waits"
        for lane, where in [
            ("default", "in namespace 'b'"),
            ("mail", "on lane 'default' in namespace 'b'"),
        ]
    ]


async def test_the_blocking_client_warns_too(
    ff_dsn: str, db: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await worker(db, "w-1", namespace="b", kinds=["x"])

    def script() -> None:
        with blocking.Client.connect(ff_dsn, namespace="a") as client:
            client.submit(task.call())

    await asyncio.to_thread(script)

    assert len(warnings(caplog)) == 1
