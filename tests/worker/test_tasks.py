"""The low-level loop: claimed tasks in the caller's own hands."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from flowfabric import App, LeaseLost, StaleLease, ValidationError
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.complete import Completed
from flowfabric.engine.lifecycle.delay import Delayed
from flowfabric.engine.lifecycle.fail import RetryScheduled, TerminalFailed
from flowfabric.errors import ExecutionNotActive, TaskConsumed
from flowfabric.states import PublicState
from flowfabric.worker.claimed_task import ClaimedTask
from tests import given
from tests.worker.facts import eventually
from tests.worker.test_lease_loss import take_lease

pytestmark = pytest.mark.timeout(30)


@contextlib.asynccontextmanager
async def claimed(ff_dsn: str, **settings: Any) -> AsyncGenerator[ClaimedTask]:
    """The first task that a low-level worker claims; the worker stops after the block."""
    worker = App().worker(dsn=ff_dsn, **settings)
    async with contextlib.aclosing(worker.tasks()) as tasks:
        yield await asyncio.wait_for(anext(tasks), 10)


async def test_a_task_shows_what_was_claimed(ff_dsn: str, db: Connection) -> None:
    execution_id = await given.created(db, input_payload=b"in", tags={"a.b": "c"})

    async with claimed(ff_dsn) as task, task:
        assert task.execution_id == execution_id
        assert task.input_payload == b"in"
        assert (task.claimed.execution_kind, task.claimed.tags) == ("job", {"a.b": "c"})
        assert task.healthy
        await task.progress(40, "so far")
        await task.complete()

    stored = await given.row(db, execution_id)
    assert (stored["progress_pct"], stored["progress_message"]) == (40, "so far")


async def test_completing_records_the_result_before_it_returns(ff_dsn: str, db: Connection) -> None:
    execution_id = await given.created(db)

    async with claimed(ff_dsn) as task:
        answer = await task.complete(b"done")

        assert answer == Completed(execution_id=execution_id)
        assert await given.public_state(db, execution_id) is PublicState.COMPLETED
    [attempt] = await given.attempts(db, execution_id)
    assert attempt["result"] == b"done"


async def test_failing_answers_with_the_retry_or_with_the_end(ff_dsn: str, db: Connection) -> None:
    await given.created(db, policy=given.retrying(1))
    await given.created(db)

    async with claimed(ff_dsn) as task:
        retried = await task.fail("flaky")
    async with claimed(ff_dsn) as task:
        ended = await task.fail("broken", "permanent")

    assert isinstance(retried, RetryScheduled)
    assert retried.next_attempt_index == 1
    assert retried.delay_until is not None
    assert ended == TerminalFailed(execution_id=task.execution_id, max_attempts=1)
    stored = await given.row(db, task.execution_id)
    assert (stored["failure_reason"], stored["failure_category"]) == ("broken", "permanent")


async def test_delaying_parks_the_attempt(ff_dsn: str, db: Connection) -> None:
    execution_id = await given.created(db)

    async with claimed(ff_dsn) as task:
        assert await task.delay(for_=60) == Delayed(execution_id=execution_id)

    assert await given.public_state(db, execution_id) is PublicState.DELAYED
    assert (await given.row(db, execution_id))["total_attempt_count"] == 1


async def test_cancelling_ends_without_a_result(ff_dsn: str, db: Connection) -> None:
    execution_id = await given.created(db)

    async with claimed(ff_dsn) as task:
        await task.cancel("not needed")

    stored = await given.row(db, execution_id)
    assert (stored["public_state"], stored["cancelled_by"]) == ("cancelled", "worker")
    assert stored["cancellation_reason"] == "not needed"


async def test_releasing_hands_it_back_uncounted(ff_dsn: str, db: Connection) -> None:
    execution_id = await given.created(db)

    async with claimed(ff_dsn) as task:
        await task.release()

    stored = await given.row(db, execution_id)
    assert (stored["public_state"], stored["lease_reclaim_count"]) == ("waiting", 0)
    assert stored["retry_count"] == 0


async def test_leaving_the_block_without_an_end_hands_it_back_and_says_so(
    ff_dsn: str, db: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    execution_id = await given.created(db)

    with caplog.at_level(logging.WARNING, "flowfabric.worker"):
        async with claimed(ff_dsn) as task, task:
            pass

    assert await given.public_state(db, execution_id) is PublicState.WAITING
    assert f"{execution_id} attempt 1 was left without an outcome" in caplog.text


async def test_an_error_in_the_block_hands_it_back_and_goes_on_up(
    ff_dsn: str, db: Connection
) -> None:
    execution_id = await given.created(db)

    with pytest.raises(RuntimeError, match="mine"):
        async with claimed(ff_dsn) as task, task:
            raise RuntimeError("mine")

    assert await given.public_state(db, execution_id) is PublicState.WAITING


ENDINGS: dict[str, Callable[[ClaimedTask], Awaitable[object]]] = {
    "complete": lambda task: task.complete(b"x"),
    "fail": lambda task: task.fail("x"),
    "cancel": lambda task: task.cancel("x"),
    "delay": lambda task: task.delay(for_=60),
    "release": lambda task: task.release(),
}


@pytest.mark.parametrize("second", [*ENDINGS, "progress"])
@pytest.mark.parametrize("first", ["complete", "release"])
async def test_a_task_ends_once(ff_dsn: str, db: Connection, first: str, second: str) -> None:
    calls = {**ENDINGS, "progress": lambda task: task.progress(1)}
    execution_id = await given.created(db)

    async with claimed(ff_dsn) as task, task:
        await ENDINGS[first](task)
        before = await given.row(db, execution_id)
        with pytest.raises(TaskConsumed):
            await calls[second](task)

        assert await given.row(db, execution_id) == before


MISTAKEN: dict[str, Callable[[ClaimedTask], Awaitable[object]]] = {
    "a result that is no bytes": lambda task: task.complete("text"),  # type: ignore[arg-type]
    "a reason that is an exception": lambda task: task.fail(ValueError("x")),  # type: ignore[arg-type]
    "a reason that is nothing": lambda task: task.cancel(None),  # type: ignore[arg-type]
    "a delay without a time": lambda task: task.delay(),
    "a delay for ever": lambda task: task.delay(for_=float("inf")),
}


@pytest.mark.parametrize("mistake", MISTAKEN)
async def test_after_a_mistaken_end_the_loop_goes_on(
    ff_dsn: str, db: Connection, mistake: str
) -> None:
    for _ in range(2):
        await given.created(db)
    worker = App().worker(dsn=ff_dsn, concurrency=2, drain=0, lease_ttl=1)

    async with contextlib.aclosing(worker.tasks()) as tasks:
        first = await asyncio.wait_for(anext(tasks), 5)
        with contextlib.suppress(ValidationError, TypeError, ValueError, AttributeError):
            await asyncio.wait_for(MISTAKEN[mistake](first), 5)
        second = await asyncio.wait_for(anext(tasks), 5)
        assert await asyncio.wait_for(second.complete(), 5)


@pytest.mark.parametrize("ending", ENDINGS)
async def test_an_end_that_comes_too_late_is_refused(
    ff_dsn: str, db: Connection, ending: str
) -> None:
    execution_id = await given.created(db)

    async with claimed(ff_dsn) as task:
        await take_lease(db, execution_id)
        with pytest.raises((LeaseLost, StaleLease, ExecutionNotActive)):
            await ENDINGS[ending](task)

    assert (await given.row(db, execution_id))["worker_instance_id"] == "w-2"


async def test_a_lease_is_renewed_while_the_caller_works(ff_dsn: str, db: Connection) -> None:
    execution_id = await given.created(db)

    async with claimed(ff_dsn, lease_ttl=1) as task:
        first = (await given.row(db, execution_id))["lease_expires_at_ms"]

        async def renewed_for_three_terms() -> bool:
            stored = await given.row(db, execution_id)
            return stored["lease_expires_at_ms"] - first > 2000

        await eventually(renewed_for_three_terms)
        assert task.healthy
        await task.complete()

    assert await given.completion_events(db, execution_id) == ["success"]


async def test_a_lost_task_is_not_healthy_and_leaving_its_block_is_quiet(
    ff_dsn: str, db: Connection
) -> None:
    execution_id = await given.created(db)

    async with claimed(ff_dsn, lease_ttl=1) as task, task:
        await take_lease(db, execution_id)
        await eventually(lambda: not task.healthy)

    assert (await given.row(db, execution_id))["worker_instance_id"] == "w-2"


async def test_no_more_are_out_than_there_are_slots(ff_dsn: str, db: Connection) -> None:
    for _ in range(3):
        await given.created(db)
    worker = App().worker(dsn=ff_dsn, concurrency=2)

    async with contextlib.aclosing(worker.tasks()) as tasks:
        first, _second = await anext(tasks), await anext(tasks)
        third = asyncio.create_task(anext(tasks))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(third), 0.3)
        assert await given_active(db) == 2
        await first.complete()
        assert (await asyncio.wait_for(third, 5)).execution_id != first.execution_id

    assert await given_active(db) == 0


async def given_active(db: Connection) -> int:
    return await db.fetchval("SELECT count(*) FROM ff.execution WHERE lifecycle_phase = 'active'")


async def test_stopping_ends_the_loop_and_hands_back_what_is_out(
    ff_dsn: str, db: Connection
) -> None:
    execution_id = await given.created(db)
    worker = App().worker(dsn=ff_dsn, drain=0)
    seen: list[ClaimedTask] = []

    async def work() -> None:
        async for task in worker.tasks():
            seen.append(task)

    working = asyncio.create_task(work())
    await eventually(lambda: seen)
    worker.stop()
    await asyncio.wait_for(working, 5)

    assert await given.public_state(db, execution_id) is PublicState.WAITING


async def test_only_the_kinds_of_its_app_come_if_it_has_any(ff_dsn: str, db: Connection) -> None:
    await given.created(db, execution_kind="other", priority=9)
    wanted = await given.created(db, execution_kind="job")
    app = App()
    app.task("job")(lambda ctx: None)

    async with contextlib.aclosing(app.worker(dsn=ff_dsn).tasks()) as tasks:
        task = await asyncio.wait_for(anext(tasks), 5)
        assert task.execution_id == wanted
        await task.complete()
