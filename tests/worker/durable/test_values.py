"""The values of entries: what a handler gets is what was stored, in the first run too."""

from datetime import date
from typing import Any, NamedTuple

import msgspec
import pytest

from flowfabric import Ctx, ExecutionFailed, MsgpackCodec, Retry
from flowfabric.testing import Clock
from tests.worker.durable.lab import Lab

pytestmark = pytest.mark.timeout(60)


class Receipt(msgspec.Struct):
    number: int
    when: date


class Pair(NamedTuple):
    a: int
    b: int


async def test_values_are_read_back_in_the_first_run_too(lab: Lab, clock: Clock) -> None:
    async def untyped():
        return (1, Pair(2, 3))

    async def typed() -> Receipt:
        return Receipt(7, date(2027, 1, 5))

    async def given() -> Any:
        return {"number": 8, "when": "2027-01-06"}

    async def raw() -> bytes:
        return b"\xff\x00"

    async def nothing() -> None: ...

    async def maybe(value: bytes | None) -> bytes | None:
        return value

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        values = [
            await ctx.step("untyped", untyped),
            await ctx.step("typed", typed),
            await ctx.step("given", given, returns=Receipt),
            await ctx.step("raw", raw),
            await ctx.step("nothing", nothing),
            await ctx.step("some", maybe, b"\xff"),
            await ctx.step("none", maybe, None),
        ]
        lab.did.append(values)
        await ctx.sleep(60)
        return repr(values)

    handle = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()

    first, second = lab.did
    assert first == second
    assert first == [
        [1, [2, 3]],
        Receipt(7, date(2027, 1, 5)),
        Receipt(8, date(2027, 1, 6)),
        b"\xff\x00",
        None,
        b"\xff",
        None,
    ]
    assert await handle.result(5) == repr(first)


async def test_the_codec_of_the_task_writes_its_values(lab: Lab) -> None:
    async def total() -> dict[str, int]:
        return {"total": 3}

    @lab.app.task("job", codec=MsgpackCodec())
    async def job(ctx: Ctx) -> dict[str, int]:
        return await ctx.step("total", total)

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == {"total": 3}
    [entry] = await lab.entries(handle)
    assert (entry["encoding"], entry["value"]) == ("msgpack", b"\x81\xa5total\x03")


@pytest.mark.parametrize(
    ("value", "category"),
    [
        (object(), "result_encode"),
        ("x" * 2000, "result_too_large"),
        ("text", "result_decode"),
        (None, "result_decode"),
        (b"text", "result_decode"),
    ],
)
async def test_a_result_that_cannot_be_stored_is_a_failure_that_is_not_retried(
    lab: Lab, value: Any, category: str
) -> None:
    async def odd() -> Any:
        lab.did.append("odd")
        return value

    @lab.app.task("job", max_step_bytes=1000, retry=Retry(max_retries=2, initial=0))
    async def job(ctx: Ctx) -> None:
        returns = int if category == "result_decode" else None
        await ctx.step("odd", odd, retry=Retry(max_retries=2, initial=0), returns=returns)

    handle = await lab.submitted(job.call())

    with pytest.raises(ExecutionFailed) as failed:
        await handle.result(5)
    assert failed.value.category == category
    assert lab.did == ["odd"]
    assert await lab.journal(handle) == ["odd#0 failed"]
