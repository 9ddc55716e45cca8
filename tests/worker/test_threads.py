"""Plain functions that do not return when their attempt is over."""

import asyncio
import contextlib
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from flowfabric import App, Client, Ctx, Depends, Engine, Retry
from flowfabric.engine.executions.explanation import ReasonCode
from flowfabric.worker.threads import HandlerThreads
from tests.worker.facts import eventually

pytestmark = pytest.mark.timeout(40)


@pytest.fixture
def gate() -> Generator[threading.Event]:
    """What functions hang on; opened in the end, so that no thread stays."""
    opened = threading.Event()
    yield opened
    opened.set()


class Hanging:
    """An app with a task that hangs on the gate, and others that do not."""

    def __init__(self, gate: threading.Event) -> None:
        self.app = app = App()
        self.starts = 0

        @app.task("hangs", timeout=0.1, retry=Retry(max_retries=50, initial=0))
        def hangs(ctx: Ctx) -> str:
            self.starts += 1
            gate.wait(30)
            return "returned"

        @app.task("async")
        async def on_loop(ctx: Ctx) -> str:
            return "on the loop"

        @app.task("plain")
        def plain(ctx: Ctx) -> str:
            return "in a thread"

        self.hangs, self.on_loop, self.plain = hangs, on_loop, plain


async def test_a_function_that_hangs_takes_neither_slots_nor_threads_from_others(
    client: Client, ff_dsn: str, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = Hanging(gate)
    limits: dict[str, Any] = {"concurrency": 2, "sync_workers": 2, "max_stuck_threads": 3}
    async with hanging.app.worker(dsn=ff_dsn, **limits):
        stuck = await client.submit(hanging.hangs.call())
        await eventually(lambda: "is not claimed" in caplog.text)

        for _ in range(3):
            others = [
                await client.submit(hanging.on_loop.call()),
                await client.submit(hanging.plain.call()),
            ]
            assert [await each.result(timeout=5) for each in others] == [
                "on the loop",
                "in a thread",
            ]
        assert hanging.starts == 3
        gate.set()
        assert await stuck.result(timeout=10) == "returned"

    assert hanging.starts == 4
    assert "task 'hangs' is not claimed until one of its 3 stuck threads returns" in caplog.text
    assert 'executor="process"' in caplog.text


async def test_workers_and_explanations_show_which_task_is_stuck(
    client: Client, ff_dsn: str, ff_engine: Engine, gate: threading.Event
) -> None:
    hanging = Hanging(gate)

    async def shown() -> bool:
        [worker] = (await ff_engine.list_workers("default")).workers
        return (worker.stuck_threads, worker.unclaimed_kinds) == ({"hangs": 1}, ["hangs"])

    async def nothing_shown() -> bool:
        [worker] = (await ff_engine.list_workers("default")).workers
        return (worker.stuck_threads, worker.unclaimed_kinds) == ({}, [])

    async with hanging.app.worker(dsn=ff_dsn, max_stuck_threads=1):
        handle = await client.submit(hanging.hangs.call())
        await eventually(shown)
        waiting = await client.submit(hanging.hangs.call())
        explained = await ff_engine.explain_execution(waiting.execution_id)
        other = await client.submit(hanging.plain.call())
        assert await other.result(timeout=5) == "in a thread"
        gate.set()
        assert await handle.result(timeout=10) == "returned"
        await eventually(nothing_shown)

    assert explained.able_workers == 0
    assert explained.reasons[0].why is ReasonCode.THREADS_STUCK
    assert "'hangs'" in explained.summary


async def test_what_was_claimed_already_is_not_begun(
    client: Client, ff_dsn: str, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """It is handed back: others may run it, this worker has no thread for it."""
    hanging = Hanging(gate)

    handles = await client.submit_many([hanging.hangs.call() for _ in range(65)])
    limits: dict[str, Any] = {"concurrency": 64, "sync_workers": 64, "max_stuck_threads": 1}
    async with hanging.app.worker(dsn=ff_dsn, **limits):  # 64 in the slots, one behind them
        await eventually(lambda: "64 in all" in caplog.text)
        other = await client.submit(hanging.on_loop.call())
        assert await other.result(timeout=5) == "on the loop"
        assert hanging.starts == 64
        gate.set()
        assert [await each.result(timeout=20) for each in handles] == ["returned"] * 65


async def test_dependencies_are_cleaned_up_when_the_thread_has_returned(
    client: Client, ff_dsn: str, gate: threading.Event
) -> None:
    app, seen = App(), []

    async def connection() -> AsyncGenerator[str]:
        yield "connection"
        seen.append("closed")

    @app.task("hangs", timeout=0.1)
    def hangs(ctx: Ctx, used: str = Depends(connection)) -> None:
        gate.wait(30)
        seen.append("returned")

    async with app.worker(dsn=ff_dsn):
        handle = await client.submit(hangs.call())
        with contextlib.suppress(Exception):
            await handle.result(timeout=10)
        assert seen == []
        gate.set()
        await eventually(lambda: seen == ["returned", "closed"])


async def test_the_end_of_the_process_does_not_wait_for_a_stuck_thread(ff_dsn: str) -> None:
    program = f"""
        import asyncio, threading
        from flowfabric import App, Client

        app = App()

        @app.task("hangs", timeout=0.1)
        def hangs(ctx):
            threading.Event().wait()

        async def main():
            async with await Client.connect({ff_dsn!r}) as client, app.worker(dsn={ff_dsn!r}):
                handle = await client.submit(hangs.call())
                try:
                    await handle.result(timeout=10)
                except Exception as error:
                    print(type(error).__name__)

        asyncio.run(main())
    """
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (0, "ExecutionExpired\n"), ended.stderr


# The threads alone.


async def test_kinds_are_exhausted_together_and_only_those_with_stuck_threads(
    gate: threading.Event,
) -> None:
    threads = HandlerThreads(2, most_stuck=2)

    async def stick(kind: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await threads.run(kind, gate.wait)

    seen: list[Any] = []
    for kind in ("a", "b"):
        await stick(kind)
        seen.append((threads.stuck, threads.exhausted))
    assert await threads.run("c", lambda: "free") == "free"
    gate.set()
    await eventually(lambda: not threads.stuck)

    assert seen == [({"a": 1}, frozenset()), ({"a": 1, "b": 1}, frozenset("ab"))]
    assert threads.exhausted == frozenset()
    threads.close()


async def test_a_call_that_is_cancelled_while_it_waits_for_a_thread_never_runs(
    gate: threading.Event,
) -> None:
    threads, ran = HandlerThreads(1), []
    first = asyncio.create_task(threads.run("a", gate.wait))
    await asyncio.sleep(0)
    second = asyncio.create_task(threads.run("a", lambda: ran.append(1)))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait({second})
    gate.set()
    await first

    assert (ran, threads.stuck) == ([], {})
    threads.close()
