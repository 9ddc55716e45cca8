"""What becomes of an attempt whose handler does not return."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from flowfabric import App, Client, Ctx, ExecutionFailed, Fail, Retry, RetryLater
from flowfabric.db.rows import Connection
from flowfabric.states import PublicState
from tests import given
from tests.worker.facts import eventually

pytestmark = pytest.mark.timeout(30)

SOON = Retry(max_retries=3, initial=0)


@pytest.fixture
def app() -> App:
    """An app whose task `ping` shows that the worker carries on."""
    made = App()

    @made.task("ping")
    async def ping(ctx: Ctx) -> str:
        return "pong"

    return made


async def carries_on(client: Client, app: App) -> bool:
    """Does a worker of `app` that runs now still work?"""
    handle = await client.submit(app.tasks["ping"].call())
    return await handle.result(timeout=10) == "pong"


async def failure(client: Client, ff_dsn: str, app: App, call: Any) -> ExecutionFailed:
    """How the call failed, on a worker with a single slot that goes on afterwards."""
    async with app.worker(dsn=ff_dsn, concurrency=1):
        handle = await client.submit(call)
        with pytest.raises(ExecutionFailed) as failed:
            await handle.result(timeout=10)
        assert await carries_on(client, app)
    return failed.value


async def attempts_of(client: Client, ff_dsn: str, app: App, call: Any) -> list[Any]:
    """The attempts of the call, once it has ended."""
    handle = await client.submit(call)
    async with app.worker(dsn=ff_dsn, concurrency=1):
        await eventually(lambda: has_ended(handle))
    return await handle.attempts()


async def has_ended(handle: Any) -> bool:
    return await handle.state() in (PublicState.FAILED, PublicState.COMPLETED)


@pytest.mark.parametrize("threaded", [False, True], ids=["async", "plain"])
async def test_an_exception_fails_with_its_causes_and_keeps_its_traceback(
    client: Client, ff_dsn: str, db: Connection, app: App, threaded: bool
) -> None:
    def deep() -> None:
        try:
            raise ConnectionError("refused")
        except ConnectionError as error:
            raise LookupError("no rate") from error

    def broken(ctx: Ctx) -> None:
        try:
            deep()
        except LookupError as error:
            raise RuntimeError("cannot charge") from error

    async def broken_too(ctx: Ctx) -> None:
        broken(ctx)

    task = app.task("broken")(broken if threaded else broken_too)

    failed = await failure(client, ff_dsn, app, task.call())

    assert failed.reason == (
        "RuntimeError: cannot charge: LookupError: no rate: ConnectionError: refused"
    )
    assert failed.category == "handler_error"
    [attempt] = await given.attempts(db, failed.execution_id)
    detail = attempt["failure_detail"]
    assert "ConnectionError: refused" in detail
    assert "in deep" in detail
    assert "run_attempt" not in detail  # begins with the handler
    assert detail.rstrip().endswith("RuntimeError: cannot charge")


@pytest.mark.parametrize(
    ("error", "told"), [(LookupError(), "LookupError"), (KeyError("x"), "KeyError: 'x'")]
)
async def test_an_exception_is_told_with_its_type(
    client: Client, ff_dsn: str, app: App, error: Exception, told: str
) -> None:
    @app.task("broken")
    async def broken(ctx: Ctx) -> None:
        raise error

    failed = await failure(client, ff_dsn, app, broken.call())

    assert failed.reason == told
    assert str(failed).endswith(f"failed (handler_error): {told}")


async def test_a_traceback_that_is_too_long_keeps_its_innermost_frames_and_its_message(
    client: Client, ff_dsn: str, db: Connection, app: App
) -> None:
    def fall(depth: int, *ways: Any) -> None:
        if not depth:
            raise RuntimeError("é" * 100_000 + "\nthe end")
        ways[depth % 2](depth - 1, *ways)

    def dig(depth: int, *ways: Any) -> None:
        fall(depth, *ways)

    @app.task("deep")
    async def deep(ctx: Ctx) -> None:
        fall(400, fall, dig)

    failed = await failure(client, ff_dsn, app, deep.call())

    [attempt] = await given.attempts(db, failed.execution_id)
    detail = attempt["failure_detail"]
    assert 8_000 < len(detail.encode()) <= 16 * 1024
    assert detail.startswith("… (the frames above are cut)\n  File ")
    assert detail.rstrip().endswith("the end")
    assert "    raise RuntimeError(" in detail


class Panic(BaseException):
    """Not an `Exception`."""


PANICS: list[tuple[str, Callable[[], object]]] = [
    ("sys.exit", lambda: sys.exit(3)),
    ("Ctrl-C", lambda: (_ for _ in ()).throw(KeyboardInterrupt())),
    ("own base exception", lambda: (_ for _ in ()).throw(Panic("panic"))),
]


@pytest.mark.parametrize("threaded", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize("panic", [way for _, way in PANICS], ids=[name for name, _ in PANICS])
async def test_what_is_not_an_exception_fails_as_a_panic_and_the_worker_carries_on(
    client: Client, ff_dsn: str, app: App, panic: Callable[[], object], threaded: bool
) -> None:
    def in_thread(ctx: Ctx) -> None:
        panic()

    async def on_loop(ctx: Ctx) -> None:
        panic()

    task = app.task("panics")(in_thread if threaded else on_loop)

    assert (await failure(client, ff_dsn, app, task.call())).category == "handler_panic"


async def test_a_handler_that_cancels_itself_fails_and_the_slot_goes_on(
    client: Client, ff_dsn: str, app: App
) -> None:
    @app.task("cancels")
    async def cancels(ctx: Ctx) -> None:
        raise asyncio.CancelledError("by itself")

    failed = await failure(client, ff_dsn, app, cancels.call())

    assert failed.category in ("handler_panic", "handler_error")


class Unspeakable(Exception):
    """Its text cannot be made."""

    def __str__(self) -> str:
        raise ValueError("no words")


ODD: list[tuple[str, Callable[[], BaseException]]] = [
    ("an error without a text", Unspeakable),
    ("Fail with an exception as its reason", lambda: Fail(ValueError("why"))),  # type: ignore[arg-type]
    ("Fail with a category that is no text", lambda: Fail("why", category=None)),  # type: ignore[arg-type]
    ("RetryLater after an impossible time", lambda: RetryLater(after=1e30)),
    ("RetryLater after a negative time", lambda: RetryLater(after=-1)),
]


@pytest.mark.parametrize("make", [make for _, make in ODD], ids=[name for name, _ in ODD])
async def test_an_odd_exception_is_still_recorded_and_the_worker_carries_on(
    client: Client, ff_dsn: str, app: App, make: Callable[[], BaseException]
) -> None:
    @app.task("odd")
    async def odd(ctx: Ctx) -> None:
        raise make()

    failed = await failure(client, ff_dsn, app, odd.call())

    assert failed.reason


@pytest.mark.parametrize("what", [Retry(max_retries=2), Retry], ids=["policy", "class"])
async def test_a_handler_that_raises_the_policy_is_told_what_to_raise(
    client: Client, ff_dsn: str, app: App, what: Any
) -> None:
    @app.task("mistaken")
    async def mistaken(ctx: Ctx) -> None:
        raise what

    failed = await failure(client, ff_dsn, app, mistaken.call())

    assert failed.reason == (
        "TypeError: exceptions must derive from BaseException:"
        " a handler raises RetryLater to be tried again; Retry is a task's policy"
    )


@pytest.mark.parametrize("what", [Retry(max_retries=2), RetryLater(after=1)], ids=type)
async def test_a_handler_that_returns_a_retry_is_told_to_raise_one(
    client: Client, ff_dsn: str, app: App, what: object
) -> None:
    @app.task("mistaken", retry=SOON)
    async def mistaken(ctx: Ctx) -> Any:
        return what

    failed = await failure(client, ff_dsn, app, mistaken.call())

    assert failed.category == "result_encode"
    assert failed.reason == (
        f"'mistaken' returned a {type(what).__name__};"
        " a handler that is to be tried again raises RetryLater"
    )


async def test_texts_that_cannot_be_stored_are_cleaned_and_not_refused(
    client: Client, ff_dsn: str, db: Connection, app: App
) -> None:
    @app.task("dirty")
    async def dirty(ctx: Ctx) -> None:
        raise Fail("a\x00b\ud800c", category="d\x00e\udfff") from RuntimeError("f\x00g\ud800h")

    failed = await failure(client, ff_dsn, app, dirty.call())

    assert failed.reason is not None
    assert failed.reason.startswith("a\N{REPLACEMENT CHARACTER}b")
    assert failed.reason.endswith("c")
    assert failed.category is not None
    assert failed.category.startswith("d\N{REPLACEMENT CHARACTER}e")
    [attempt] = await given.attempts(db, failed.execution_id)
    assert "f\N{REPLACEMENT CHARACTER}g" in attempt["failure_detail"]


async def test_a_message_without_end_is_cut(client: Client, ff_dsn: str, app: App) -> None:
    @app.task("long")
    async def long(ctx: Ctx) -> None:
        raise RuntimeError("é" * 100_000)

    failed = await failure(client, ff_dsn, app, long.call())

    assert failed.reason is not None
    assert 16_000 < len(failed.reason.encode()) <= 16 * 1024
    assert failed.reason.endswith("…")


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b'{"number": "one"}', b"[]", b"{}"])
async def test_a_payload_that_does_not_decode_fails_at_once_and_the_worker_carries_on(
    client: Client, ff_dsn: str, db: Connection, app: App, payload: bytes
) -> None:
    ran: list[int] = []

    @app.task("job", retry=SOON)
    async def job(ctx: Ctx, number: int) -> None:
        ran.append(number)

    bad = await given.created(
        db, input_payload=payload, payload_encoding="json", policy=given.retrying(3)
    )
    async with app.worker(dsn=ff_dsn, concurrency=1):
        with pytest.raises(ExecutionFailed, match="payload of 'job' does not decode") as failed:
            await client.handle(bad).result(timeout=10)
        assert await carries_on(client, app)

    assert failed.value.category == "extractor_payload_decode"
    assert ran == []
    assert len(await given.attempts(db, bad)) == 1


OUTCOMES: list[tuple[str, Callable[[], BaseException], dict[str, Any], int]] = [
    ("an exception under no policy", lambda: RuntimeError("x"), {}, 1),
    ("an exception", lambda: RuntimeError("x"), {"retry": SOON}, 4),
    ("Fail", lambda: Fail("x", category="declined"), {"retry": SOON}, 4),
    ("Fail for good", lambda: Fail("x", retryable=False), {"retry": SOON}, 1),
    ("Fail as permanent", lambda: Fail("x", category="permanent"), {"retry": SOON}, 1),
    (
        "Fail as permanent that may be retried",
        lambda: Fail("x", category="permanent", retryable=True),
        {"retry": SOON},
        4,
    ),
    ("RetryLater", lambda: RetryLater("x", after=0), {"retry": SOON}, 4),
    ("RetryLater without a policy", lambda: RetryLater("x"), {}, 1),
    (
        "one of retry_on",
        lambda: ConnectionResetError("x"),
        {"retry": SOON, "retry_on": [OSError]},
        4,
    ),
    ("none of retry_on", lambda: KeyError("x"), {"retry": SOON, "retry_on": [OSError]}, 1),
    ("one of no_retry_on", lambda: KeyError("x"), {"retry": SOON, "no_retry_on": [KeyError]}, 1),
    (
        "in both lists",
        lambda: ConnectionResetError("x"),
        {"retry": SOON, "retry_on": [OSError], "no_retry_on": [ConnectionError]},
        1,
    ),
    ("none of no_retry_on", lambda: KeyError("x"), {"retry": SOON, "no_retry_on": [OSError]}, 4),
    (
        "a category of the policy",
        lambda: Fail("x", category="busy"),
        {"retry": Retry(max_retries=1, initial=0, categories=["busy"])},
        2,
    ),
    (
        "no category of the policy",
        lambda: Fail("x", category="lazy"),
        {"retry": Retry(max_retries=1, initial=0, categories=["busy"])},
        1,
    ),
]


@pytest.mark.parametrize(
    ("make", "settings", "tries"),
    [outcome[1:] for outcome in OUTCOMES],
    ids=[outcome[0] for outcome in OUTCOMES],
)
async def test_whether_another_attempt_follows(
    client: Client,
    ff_dsn: str,
    app: App,
    make: Callable[[], BaseException],
    settings: dict[str, Any],
    tries: int,
) -> None:
    @app.task("fails", **settings)
    async def fails(ctx: Ctx) -> None:
        raise make()

    attempts = await attempts_of(client, ff_dsn, app, fails.call())

    assert [attempt.attempt_index for attempt in attempts] == list(range(tries))
    assert [attempt.outcome for attempt in attempts] == ["retry"] * (tries - 1) + ["failed"]
    raised = make()
    told = "x" if isinstance(raised, Fail | RetryLater) else f"{type(raised).__name__}: {raised}"
    assert {attempt.failure_reason for attempt in attempts} == {told}


async def test_a_handler_is_retried_until_it_succeeds(
    client: Client, ff_dsn: str, db: Connection, app: App
) -> None:
    seen: list[tuple[int, str]] = []

    @app.task("flaky", retry=SOON)
    async def flaky(ctx: Ctx) -> str:
        seen.append((ctx.attempt_index, ctx.attempt_type.value))
        if ctx.attempt_index < 2:
            raise RuntimeError("not yet")
        return "at last"

    async with app.worker(dsn=ff_dsn):
        handle = await client.submit(flaky.call())
        assert await handle.result(timeout=10) == "at last"

    assert seen == [(0, "initial"), (1, "retry"), (2, "retry")]
    assert await given.completion_events(db, handle.execution_id) == ["success"]


async def test_a_retry_waits_as_long_as_the_handler_or_the_policy_says(
    client: Client, ff_dsn: str, db: Connection, app: App
) -> None:
    @app.task("asks", retry=Retry(max_retries=3, initial=50))
    async def asks(ctx: Ctx, after: float | None) -> None:
        raise RetryLater("later", after=after)

    by_handler = await client.submit(asks.call(600))
    by_policy = await client.submit(asks.call(None))
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert 590 < await seconds_until_retry(db, by_handler) <= 600
    assert 40 < await seconds_until_retry(db, by_policy) <= 50


async def seconds_until_retry(db: Connection, handle: Any) -> float:
    stored = await given.row(db, handle.execution_id)
    assert stored["blocking_reason"] == "waiting_for_retry_backoff"
    return (stored["delay_until_ms"] - await db.fetchval("SELECT ff.now_ms()")) / 1000
