"""Errors of steps: the same class in the first run and in every replay, without pickle."""

from typing import Any

import msgspec
import pytest

from flowfabric import Ctx, Retry, StepFailed
from flowfabric.testing import Clock
from tests.worker.durable.lab import Lab

pytestmark = pytest.mark.timeout(60)


class NotFoundThere(Exception):
    def __init__(self, url: str, status: int) -> None:
        super().__init__(f"{url}: {status}")
        self.url, self.status = url, status


class Unstorable(Exception):
    def __init__(self) -> None:
        super().__init__("odd")
        self.what = object()


async def seen_twice(lab: Lab, clock: Clock, error: Exception, **settings: Any) -> list[Any]:
    """What the handler caught in its first run and in its replay."""

    async def body() -> None:
        lab.did.append("ran")
        raise error

    task_raises = settings.pop("task_raises", ())
    caught: list[BaseException] = []

    @lab.app.task("job", raises=task_raises)
    async def job(ctx: Ctx) -> None:
        try:
            await ctx.step("fetch", body, **settings)
        except Exception as found:
            caught.append(found)
        await ctx.sleep(60)

    await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()
    assert lab.did == ["ran"]
    assert len(caught) == 2
    return caught


@pytest.mark.parametrize("where", ["step", "task"])
async def test_a_class_in_raises_comes_back_as_itself_without_its_constructor(
    lab: Lab, clock: Clock, where: str
) -> None:
    named: dict[str, Any] = {"raises" if where == "step" else "task_raises": (NotFoundThere,)}

    found = await seen_twice(lab, clock, NotFoundThere("a.example", 404), **named)

    for each in found:
        assert type(each) is NotFoundThere
        assert (each.url, each.status, each.args) == ("a.example", 404, ("a.example: 404",))


async def test_an_error_of_the_system_keeps_its_number_and_file(lab: Lab, clock: Clock) -> None:
    error = FileNotFoundError(2, "No such file", "a.txt")

    found = await seen_twice(lab, clock, error, raises=(FileNotFoundError,))

    for each in found:
        assert type(each) is FileNotFoundError
        assert (each.errno, each.filename, each.args) == (2, "a.txt", (2, "No such file"))
        assert str(each) == str(error)


async def test_an_error_that_a_later_step_raises_again_is_as_retryable_as_any(lab: Lab) -> None:
    @lab.app.task("job", retry=Retry(max_retries=1, initial=0), raises=(NotFoundThere,))
    async def job(ctx: Ctx) -> str:
        async def fetch() -> None:
            raise NotFoundThere("a.example", 404)

        with pytest.raises(NotFoundThere) as caught:  # for good: recorded at once
            await ctx.step("fetch", fetch, retry=Retry(max_retries=0))

        async def report() -> str:
            lab.did.append("report")
            if len(lab.did) == 1:
                raise caught.value
            return "reported"

        return await ctx.step("report", report)

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "reported"


async def test_any_other_class_comes_back_as_step_failed(lab: Lab, clock: Clock) -> None:
    found = await seen_twice(lab, clock, NotFoundThere("a.example", 404), raises=(KeyError,))

    for each in found:
        assert type(each) is StepFailed
        assert (each.name, each.category) == ("fetch", "handler_error")
        assert (each.reason, each.error_type) == ("a.example: 404", "NotFoundThere")


async def test_an_error_that_cannot_be_stored_falls_back_to_step_failed(
    lab: Lab, clock: Clock
) -> None:
    found = await seen_twice(lab, clock, Unstorable(), raises=(Unstorable,))

    assert [type(each) for each in found] == [StepFailed, StepFailed]


async def test_a_subclass_is_not_taken_for_its_base(lab: Lab, clock: Clock) -> None:
    found = await seen_twice(lab, clock, FileNotFoundError("gone"), raises=(OSError,))

    assert [type(each) for each in found] == [StepFailed, StepFailed]


async def test_the_traceback_is_stored_and_bounded(lab: Lab, clock: Clock) -> None:
    await seen_twice(lab, clock, ValueError("x" * 100_000))

    value = await lab.db.fetchval("SELECT value FROM ff.journal WHERE name = 'fetch'")
    stored = msgspec.json.decode(value)
    assert "ValueError" in stored["traceback"]
    assert len(stored["traceback"].encode()) <= 16 * 1024
    assert len(value) < 64 * 1024


async def test_what_the_database_cannot_store_is_cleaned_out_of_an_error(
    lab: Lab, clock: Clock
) -> None:
    found = await seen_twice(lab, clock, ValueError("a\x00b \ud800"))

    assert [type(each) for each in found] == [StepFailed, StepFailed]
    assert found[0].reason == found[1].reason
    value = await lab.db.fetchval("SELECT value FROM ff.journal WHERE name = 'fetch'")
    stored = msgspec.json.decode(value)
    for text in (stored["reason"], stored["traceback"]):
        assert "\x00" not in text
        assert "a" in text
        text.encode()
