"""What a worker logs: a record for each attempt that did not succeed, and what tasks log."""

import asyncio
import logging
import re
from typing import Any

import pytest

from flowfabric import App, Client, Ctx, Fail, OutcomeError, Retry, RetryLater
from flowfabric.app.flow import Flow
from flowfabric.worker.log_context import LogContext
from tests.worker import crunching

pytestmark = pytest.mark.timeout(30)

LOG = "flowfabric.worker"


async def logged(
    client: Client, ff_dsn: str, app: App, call: Any, caplog: pytest.LogCaptureFixture
) -> tuple[str, list[logging.LogRecord]]:
    """The id of the call's execution, and what was logged about it until it ended."""
    handle = await client.submit(call)
    with caplog.at_level(logging.INFO, LOG):
        async with app.worker(dsn=ff_dsn):
            with pytest.raises(OutcomeError):
                await handle.result(timeout=20)
    name = str(handle.execution_id)
    return name, [each for each in caplog.records if getattr(each, "execution_id", None) == name]


def said(records: list[logging.LogRecord], name: str) -> list[tuple[str, str]]:
    """The level and the text of each record, without the id and the times."""
    return [
        (
            each.levelname,
            re.sub(r"in [\d.]+ s \([\d:]+\)", "soon", each.getMessage()).replace(name, "ID"),
        )
        for each in records
    ]


async def test_an_attempt_that_fails_is_logged_and_the_last_one_with_its_traceback(
    client: Client, ff_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()

    @app.task("charge", retry=Retry(max_retries=1, initial=0.2))
    async def charge(ctx: Ctx) -> None:
        raise KeyError("x")

    name, records = await logged(client, ff_dsn, app, charge.call(), caplog)

    assert said(records, name) == [
        ("WARNING", "charge ID attempt 1 of 2 failed: KeyError: 'x'; next try soon"),
        ("ERROR", "charge ID attempt 2 of 2 failed: KeyError: 'x'; no retry is left"),
    ]
    retried, failed = (vars(each) for each in records)
    known = {
        "kind": "charge",
        "max_attempts": 2,
        "error_type": "KeyError",
        "error": "KeyError: 'x'",
    }
    assert retried == retried | known | {"event": "attempt_retried", "attempt": 1}
    assert failed == failed | known | {"event": "attempt_failed", "attempt": 2}
    assert "next_try_at" in retried
    assert "next_try_at" not in failed
    assert (retried["exc_info"], retried["exc_text"]) == (None, None)
    assert failed["exc_info"][0] is KeyError  # for those that collect errors
    assert failed["exc_text"].rstrip().endswith("KeyError: 'x'")


OTHERS: list[tuple[str, Any, list[tuple[str, str]]]] = [
    (
        "not to be retried",
        lambda: Fail("no\nmoney " + "x" * 600, category="declined", retryable=False),
        [
            (
                "ERROR",
                f"charge ID attempt 1 of 3 failed (declined): no money {'x' * 491}…;"
                " such a failure is not retried",
            )
        ],
    ),
    (
        "asks to be tried again",
        lambda: RetryLater("busy", after=0),
        [
            ("INFO", "charge ID attempt 1 of 3 failed: busy; next try at once"),
            ("INFO", "charge ID attempt 2 of 3 failed: busy; next try at once"),
            ("ERROR", "charge ID attempt 3 of 3 failed: busy; no retry is left"),
        ],
    ),
]


@pytest.mark.parametrize(
    ("error", "lines"), [each[1:] for each in OTHERS], ids=[each[0] for each in OTHERS]
)
async def test_the_log_says_what_follows_a_failure(
    client: Client,
    ff_dsn: str,
    caplog: pytest.LogCaptureFixture,
    error: Any,
    lines: list[tuple[str, str]],
) -> None:
    app = App()

    @app.task("charge", retry=Retry(max_retries=2, initial=0))
    async def charge(ctx: Ctx) -> None:
        raise error()

    name, records = await logged(client, ff_dsn, app, charge.call(), caplog)

    assert said(records, name) == lines


async def test_an_attempt_that_takes_too_long_is_logged(
    client: Client, ff_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()

    @app.task("slow", timeout=0.1, retry=Retry(max_retries=1, initial=0))
    async def slow(ctx: Ctx) -> None:
        await asyncio.sleep(60)

    name, records = await logged(client, ff_dsn, app, slow.call(), caplog)

    [(retried, first), (expired, second)] = said(records, name)
    assert (retried, expired) == ("WARNING", "ERROR")
    assert re.fullmatch(r"slow ID attempt 1 of 2 timed out after 0.\d+ s on .*; next .*", first)
    assert re.fullmatch(r"slow ID attempt 2 of 2 timed .*; the execution has expired", second)


async def test_what_a_task_logs_names_its_execution_on_request(
    client: Client, ff_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, log = App(), logging.getLogger("shop")
    seen: list[logging.LogRecord] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)

    @app.task("sync")
    def in_thread(ctx: Ctx) -> None:
        log.warning("from a thread")

    @app.task("async")
    async def on_loop(ctx: Ctx) -> None:
        log.warning("from the loop")

    @app.task("pack")
    async def pack(ctx: Ctx) -> None:
        log.warning("from a member")
        raise KeyError("x")

    flow = Flow("shop")
    flow.add(pack.call(), name="packing")
    collect = Collect()
    collect.addFilter(LogContext())
    log.addHandler(collect)
    try:
        ids = [
            str((await client.submit(each.call())).execution_id) for each in (in_thread, on_loop)
        ]
        flow_id = str((await client.start(flow)).flow_id)
        await app.worker(dsn=ff_dsn).run_until_idle()
        log.warning("from outside")
    finally:
        log.removeHandler(collect)

    told = {each.getMessage(): vars(each) for each in seen}
    for text, name, kind in (
        ("from a thread", ids[0], "sync"),
        ("from the loop", ids[1], "async"),
    ):
        fields = {"execution_id": name, "kind": kind, "lane": "default", "attempt": 1}
        assert told[text] == told[text] | fields
        assert "flow_id" not in told[text]
    assert told["from a member"]["flow_id"] == flow_id
    assert [vars(each)["flow_id"] for each in caplog.records if each.name == LOG] == [flow_id]
    assert "execution_id" not in told["from outside"]


async def test_what_a_child_process_logs_reaches_the_handlers_of_the_worker(
    client: Client, ff_dsn: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    handle = await client.submit(crunching.logs.call())
    with caplog.at_level(logging.INFO):
        await crunching.app.worker(dsn=ff_dsn).run_until_idle()

    first, second = [each for each in caplog.records if each.name == "shop.images"]
    assert (first.levelname, first.getMessage()) == ("INFO", "reading cat.jpg")
    assert vars(first) == vars(first) | {
        "size": 128,
        "of": "['a', 'list']",
        "process": await handle.result(timeout=10),
        "funcName": "logs",
        "execution_id": str(handle.execution_id),
        "kind": "logs",
        "attempt": 1,
    }
    assert second.getMessage() == "cannot read"
    assert str(second.exc_text).endswith("KeyError: 'x'")
    assert "from a fork" in capfd.readouterr().err


async def test_a_child_process_that_dies_is_logged_as_a_failure(
    client: Client, ff_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    name, records = await logged(client, ff_dsn, crunching.app, crunching.dies.call(), caplog)

    assert said(records, name) == [
        (
            "ERROR",
            "dies ID attempt 1 of 1 failed (infra_crash):"
            " the process of the task ended with 9; no retry is left",
        )
    ]
