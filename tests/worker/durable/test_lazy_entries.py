"""Entries that wait for a flush: committed before anything acts on them, whatever happens."""

import asyncio
from typing import Any

import pytest

from flowfabric import Ctx, Engine, Fail
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.testing import Clock
from flowfabric.worker.durable.services import DurableServices
from tests.worker.durable.lab import Lab

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def slow_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first flush of the worker takes its time before it is sent."""
    record = DurableServices.record
    slow = [0.2]

    async def recorded(self: DurableServices, attempt: object, writes: list[EntryWrite]) -> None:
        if slow:
            await asyncio.sleep(slow.pop())
        await record(self, attempt, writes)  # type: ignore[arg-type]

    monkeypatch.setattr(DurableServices, "record", recorded)


@pytest.mark.usefixtures("slow_flush")
async def test_a_flush_that_is_cancelled_leaves_its_entries_to_the_next_one(
    lab: Lab, clock: Clock
) -> None:
    async def work() -> None: ...

    @lab.app.task("job")
    async def job(ctx: Ctx) -> bool:
        is_new = ctx.patched("audit")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await ctx.step("given up", work)
        await ctx.step("audit" if is_new else "old", work)
        lab.did.append(is_new)
        await ctx.sleep(60)
        return is_new

    handle = await lab.submitted(job.call())
    assert await lab.journal(handle) == ["patch:audit#0 done", "audit#0 done", "sleep#0 open"]
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) is True
    assert lab.did == [True, True]


@pytest.mark.usefixtures("slow_flush")
async def test_no_step_begins_before_the_commit_of_what_another_branch_is_flushing(
    lab: Lab,
) -> None:
    async def use() -> int:
        return await lab.db.fetchval("SELECT count(*) FROM ff.journal WHERE kind = 'now'")

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[int]:
        ctx.now()
        return list(await asyncio.gather(ctx.step("mail", use), ctx.step("bill", use)))

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == [1, 1]


NOTED = "SELECT count(*) FROM ff.journal WHERE kind = 'now'"


async def test_they_are_committed_before_a_child_is_spawned(lab: Lab) -> None:
    @lab.app.task("child")
    async def child(ctx: Ctx) -> int:
        return await lab.db.fetchval(NOTED)

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[int]:
        ctx.now()
        return await ctx.gather([child.call()])

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == [1]


@pytest.mark.direct("looks at the engine's own call")
async def test_they_are_committed_before_a_signal_is_sent(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Engine.send_signal

    async def sent(self: Engine, signal: Any) -> Any:
        lab.did.append(await lab.db.fetchval(NOTED))
        return await send(self, signal)

    monkeypatch.setattr(Engine, "send_signal", sent)

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        ctx.now()
        await ctx.signal(ctx.execution_id, "go")

    handle = await lab.submitted(job.call())

    assert await lab.state(handle) == "completed"
    assert lab.did == [1]


@pytest.mark.parametrize("ending", ["return", "failure", "park"])
async def test_they_are_committed_before_the_attempt_ends_or_parks(lab: Lab, ending: str) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        ctx.now()
        ctx.patched("audit")
        if ending == "park":
            await ctx.wait_for_signal("go")
        if ending == "failure":
            raise Fail("no", retryable=False)

    handle = await lab.submitted(job.call())

    noted = ["now#0 done", "patch:audit#0 done"]
    assert await lab.journal(handle) == [*noted, *(["go#0 open"] if ending == "park" else [])]
