"""Arguments of durable calls that cannot be: refused by name, and nothing is written."""

from collections.abc import Callable
from typing import Any

import pytest

from flowfabric import ConfigError, Ctx, Retry, ValidationError
from tests.worker.durable.lab import Lab

pytestmark = pytest.mark.timeout(60)

OBJECT = object()


async def work() -> None: ...


CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no sleep": (lambda ctx: ctx.sleep(), "duration 0 arguments"),
    "a sleep of too much": (lambda ctx: ctx.sleep("a", 1, 2), "duration 3 arguments"),
    "a sleep of a name": (lambda ctx: ctx.sleep("nap"), "duration 'nap'"),
    "no instant": (lambda ctx: ctx.sleep_until(), "moment 0 arguments"),
    "an instant as text": (lambda ctx: ctx.sleep_until("2027-01-01"), "moment '2027-01-01'"),
    "the name of the version": (lambda ctx: ctx.step("ff.version", work), "name 'ff.version'"),
    "a key that is a number": (lambda ctx: ctx.step("a", work, key=7), "key 7"),
    "an unknown option": (lambda ctx: ctx.step("a", work, retries=3), "no option retries"),
    "a flag as text": (lambda ctx: ctx.step("a", work, lazy="yes"), "lazy 'yes'"),
    "more tries than a journal counts": (
        lambda ctx: ctx.step("a", work, retry=Retry(max_retries=32767)),
        "max_retries 32767 must be at most 32766",
    ),
    "a patch without a name": (lambda ctx: ctx.patched(""), "name ''"),
    "a patch that is a number": (lambda ctx: ctx.patched(5), "name 5"),
    "a wait for a name": (lambda ctx: ctx.wait("approve"), "condition must be a condition"),
    "an arm without a name": (lambda ctx: ctx.select(a=ctx.signal_of("")), "name ''"),
    "an arm with a long name": (lambda ctx: ctx.select(a=ctx.signal_of("x" * 129)), "name 'xxx"),
    "a signal to a text": (lambda ctx: ctx.signal("abc", "go"), "execution_id 'abc'"),
    "a signal without a name": (lambda ctx: ctx.signal(ctx.execution_id, ""), "name ''"),
    "children that are no list": (lambda ctx: ctx.gather(None), "calls must be a list"),
    "a child that is no call": (lambda ctx: ctx.gather([work]), "calls must be a call"),
    "a child that is nothing": (lambda ctx: ctx.spawn(None), "calls must be a call"),
    "a race of functions": (lambda ctx: ctx.race(work), "calls must be a call"),
    "a compensation that is no call": (lambda ctx: ctx.compensate(work), "call must be a call"),
}


async def test_they_are_refused_by_their_names_and_nothing_is_written(lab: Lab) -> None:
    told: dict[str, str] = {}

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        for case, (call, _) in CALLS.items():
            with pytest.raises((ValidationError, ConfigError)) as refused:
                call(ctx)
            told[case] = str(refused.value)

    handle = await lab.submitted(job.call())

    assert await lab.state(handle) == "completed"
    assert {case for case, (_, why) in CALLS.items() if why not in told[case]} == set()
    assert await lab.journal(handle) == []


async def test_a_payload_that_cannot_be_sent_is_refused_by_its_name(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        with pytest.raises(ValidationError, match="payload a object cannot be encoded"):
            await ctx.signal(ctx.execution_id, "go", OBJECT)
        return "told"

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "told"
