"""Tasks in processes of their own: they cannot block the worker, and they can be stopped."""

import os
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import psutil
import pytest

from flowfabric import (
    App,
    Client,
    ConfigError,
    Ctx,
    ExecutionCancelled,
    ExecutionExpired,
    ExecutionFailed,
)
from flowfabric.db.rows import Connection
from tests import given
from tests.worker import crunching
from tests.worker.facts import eventually

pytestmark = pytest.mark.timeout(40)


@pytest.fixture
async def worker(ff_dsn: str) -> AsyncGenerator[Any]:
    """A worker of the tasks that run in processes."""
    async with crunching.app.worker(dsn=ff_dsn, lease_ttl=60, concurrency=8, drain=0.5) as running:
        yield running


async def result(client: Client, call: Any, **options: Any) -> Any:
    return await (await client.submit(call, **options)).result(timeout=20)


async def failure(client: Client, call: Any) -> ExecutionFailed:
    with pytest.raises(ExecutionFailed) as failed:
        await result(client, call)
    return failed.value


async def test_arguments_results_and_the_context_cross_over(client: Client, worker: Any) -> None:
    assert await result(client, crunching.square.call(12)) == 144
    assert await result(client, crunching.raw.call(b"\x00\xff")) == b"\xff\x00"
    handle = await client.submit(crunching.where.call(), tags={"a.b": "c"})
    pid, execution_id, tags = await handle.result(timeout=20)
    assert pid != os.getpid()
    assert (execution_id, tags) == (str(handle.execution_id), {"a.b": "c"})


async def test_a_child_is_used_again_and_they_are_not_many(client: Client, worker: Any) -> None:
    handles = await client.submit_many([crunching.where.call() for _ in range(12)])
    pids = {(await handle.result(timeout=20))[0] for handle in handles}

    assert 1 <= len(pids) <= (os.cpu_count() or 1)


async def test_what_a_task_prints_does_not_disturb_its_answer(client: Client, worker: Any) -> None:
    assert await result(client, crunching.talks.call()) == "heard"


async def test_progress_is_visible_while_it_runs(client: Client, worker: Any) -> None:
    handle = await client.submit(crunching.reports.call(1))

    async def shown() -> bool:
        snapshot = await handle.describe()
        return (snapshot.progress_pct, snapshot.progress_message) == (40, "half way")

    await eventually(shown)
    assert (await handle.describe()).public_state == "active"
    await handle.result(timeout=20)


async def test_errors_are_those_of_any_other_task(
    client: Client, worker: Any, db: Connection
) -> None:
    failed = await failure(client, crunching.raises.call("fail"))
    assert (failed.reason, failed.category) == ("declined", "card")

    failed = await failure(client, crunching.raises.call("error"))
    assert (failed.reason, failed.category) == (
        "RuntimeError: outer: LookupError: inner",
        "handler_error",
    )
    attempts = await given.attempts(db, failed.execution_id)
    assert len(attempts) == 3
    assert "in raises" in attempts[-1]["failure_detail"]

    for way_out in ("exit", "interrupt"):
        assert (await failure(client, crunching.raises.call(way_out))).category == "handler_panic"
    assert (await failure(client, crunching.odd.call())).category == "result_encode"
    assert await result(client, crunching.raises.call("retry")) is None
    assert await result(client, crunching.square.call(2)) == 4


async def test_a_payload_that_does_not_decode_fails_for_good(
    client: Client, worker: Any, db: Connection
) -> None:
    bad = await given.created(
        db, execution_kind="square", input_payload=b"{", payload_encoding="json"
    )

    with pytest.raises(ExecutionFailed) as failed:
        await client.handle(bad).result(timeout=20)
    assert failed.value.category == "extractor_payload_decode"


async def test_a_child_that_dies_fails_its_attempt_and_not_the_worker(
    client: Client, worker: Any
) -> None:
    assert (await failure(client, crunching.dies.call())).category == "infra_crash"
    assert await result(client, crunching.square.call(3)) == 9


async def test_a_task_that_takes_too_long_is_killed(
    client: Client, worker: Any, tmp_path: Path
) -> None:
    path = tmp_path / "alive"
    await result(client, crunching.square.call(1))  # a child that has started already

    with pytest.raises(ExecutionExpired, match="attempt_timeout"):
        await result(client, crunching.endless.call(str(path)))

    pid = int(path.read_text().split()[0])
    await eventually(lambda: is_gone(pid))
    assert await result(client, crunching.square.call(3)) == 9


async def test_a_task_that_is_cancelled_is_killed(
    client: Client, worker: Any, tmp_path: Path
) -> None:
    path = tmp_path / "pid"
    handle = await client.submit(crunching.waits.call(str(path)))
    pid = int(await eventually(lambda: path.exists() and path.read_text()))

    await handle.cancel("enough")

    await eventually(lambda: is_gone(pid))
    with pytest.raises(ExecutionCancelled):
        await handle.result(timeout=5)


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_no_child_outlives_its_worker(
    client: Client, ff_dsn: str, tmp_path: Path, db: Connection
) -> None:
    path = tmp_path / "pid"
    began = time.monotonic()
    async with crunching.app.worker(dsn=ff_dsn, drain=0.3):
        await result(client, crunching.square.call(1))
        handle = await client.submit(crunching.waits.call(str(path)))
        pid = int(await eventually(lambda: path.exists() and path.read_text()))

    assert time.monotonic() - began < 20  # the task itself takes a minute
    await eventually(lambda: is_gone(pid))
    await eventually(lambda: not children())
    assert (await given.row(db, handle.execution_id))["public_state"] == "waiting"


def children() -> list[psutil.Process]:
    """The child processes of this one that run tasks."""
    return [
        child
        for child in psutil.Process().children()
        if not is_gone(child.pid) and "flowfabric.worker.child_process" in child.cmdline()
    ]


@pytest.mark.timing
async def test_the_event_loop_goes_on_while_they_run(client: Client, worker: Any) -> None:
    handle = await client.submit(crunching.reports.call(0.5))
    gaps, last = [], time.monotonic()
    while await handle.state() != "completed":
        gaps.append(time.monotonic() - last)
        last = time.monotonic()

    assert max(gaps) < 0.4


def test_only_a_plain_function_of_a_module_can_run_in_a_process() -> None:
    with pytest.raises(ConfigError, match="plain function"):

        @App().task("async", executor="process")
        async def asynchronous(ctx: Ctx) -> None: ...
