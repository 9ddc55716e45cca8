"""When an attempt gives up its lease: once nothing of its handler runs any more."""

import asyncio
import time
from typing import Any

import pytest

from flowfabric import Client, Ctx, Engine, LeaseLost, TransactionOpen
from flowfabric.errors import TransportError
from flowfabric.testing import Clock
from flowfabric.worker.attempt_suspended import AttemptSuspended
from flowfabric.worker.durable import parking
from tests.worker.durable.lab import Lab, Statements
from tests.worker.facts import eventually

pytestmark = pytest.mark.timeout(60)


async def test_a_wait_beside_a_running_step_does_not_stop_the_step(lab: Lab, clock: Clock) -> None:
    async def work() -> str:
        await asyncio.sleep(0.3)
        lab.did.append("worked")
        return "work"

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[Any]:
        lab.did.append("ran")
        return [*await asyncio.gather(ctx.step("work", work), ctx.sleep(60))]

    handle = await lab.submitted(job.call())
    assert lab.did == ["ran", "worked"]
    assert await lab.state(handle) == "delayed"
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == ["work", None]
    assert lab.did == ["ran", "worked", "ran"]


async def test_the_earliest_of_several_sleeps_decides_when_the_handler_runs_again(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        async def branch(name: str, seconds: int) -> None:
            await ctx.sleep(name, seconds)
            lab.did.append(name)

        await asyncio.gather(branch("a", 600), branch("b", 60))
        return "done"

    handle = await lab.submitted(job.call())
    assert await lab.detail(handle) == "sleeps in 'a'; sleeps in 'b'"
    await clock.advance(60)
    await lab.run()
    assert lab.did == ["b"]
    await clock.advance(540)
    await lab.run()

    assert await handle.result(5) == "done"


async def test_children_alone_are_waited_for_as_children(lab: Lab) -> None:
    gate = asyncio.Event()

    @lab.app.task("child")
    async def child(ctx: Ctx) -> int:
        await gate.wait()
        return 1

    @lab.app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        return await ctx.gather([child.call(), child.call()])

    handle = await lab.client.submit(parent.call())
    async with lab.app.worker(dsn=lab.dsn):
        await eventually(lambda: _is(lab, handle, "waiting_children"))
        gate.set()
        assert await handle.result(10) == [1, 1]


async def test_children_beside_a_signal_and_a_timer_are_one_suspension(
    lab: Lab, clock: Clock
) -> None:
    gate = asyncio.Event()

    @lab.app.task("child")
    async def child(ctx: Ctx) -> int:
        await gate.wait()
        return 1

    @lab.app.task("parent")
    async def parent(ctx: Ctx) -> list[Any]:
        found = await asyncio.gather(
            ctx.gather([child.call()]), ctx.wait_for_signal("go", type=str), ctx.sleep(60)
        )
        return list(found)

    handle = await lab.client.submit(parent.call())
    async with lab.app.worker(dsn=lab.dsn):
        await eventually(lambda: _is(lab, handle, "suspended"))
        detail = await lab.detail(handle)
        parts = {"waits for a child", "waits for signal 'go'", "sleeps in 'sleep'"}
        assert set(detail.split("; ")) == parts
        gate.set()
        await eventually(lambda: _woken(lab, handle, 2))
        await lab.signal(handle, "go", "went")
        await eventually(lambda: _is(lab, handle, "delayed"))
        await clock.advance(60)
        assert await handle.result(10) == [[1], "went", None]


async def _is(lab: Lab, handle: Any, state: str) -> bool:
    return await lab.state(handle) == state


async def _woken(lab: Lab, handle: Any, epoch: int) -> bool:
    return (await lab.row(handle))["lease_epoch"] >= epoch


@pytest.mark.direct("transactions of handlers need the database itself")
async def test_a_wait_that_has_to_park_while_a_transaction_is_open_is_refused(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        await ctx.transaction()
        with pytest.raises(TransactionOpen):
            await ctx.sleep(60)
        await ctx.sleep(0.01)  # in place
        return "told"

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "told"


async def test_finally_blocks_run_at_every_park_and_may_take_their_time(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        try:
            await ctx.sleep(60)
        finally:
            await asyncio.sleep(0.8)
            lab.did.append("cleaned up")
        return "done"

    handle = await lab.submitted(job.call())
    assert lab.did == ["cleaned up"]
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "done"
    assert lab.did == ["cleaned up", "cleaned up"]


async def test_durable_calls_in_a_finally_block_end_it_as_well(lab: Lab, clock: Clock) -> None:
    async def work() -> None:
        lab.did.append("work")

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        try:
            await ctx.sleep(60)
        finally:
            try:
                await ctx.step("work", work)
            except AttemptSuspended:
                lab.did.append("told")
                raise

    handle = await lab.submitted(job.call())

    assert lab.did == ["told"]
    assert await lab.state(handle) == "delayed"


async def test_a_handler_that_swallows_its_park_has_no_outcome(lab: Lab, clock: Clock) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        try:
            await ctx.sleep(60)
        except BaseException:
            return "not so fast"
        return "done"

    handle = await lab.submitted(job.call())
    assert await lab.state(handle) == "delayed"
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "done"


async def test_the_park_of_a_task_group_is_no_failure(lab: Lab, clock: Clock) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.sleep("a", 60))
            group.create_task(ctx.sleep("b", 60))
        return "done"

    handle = await lab.submitted(job.call())
    assert await lab.state(handle) == "delayed"
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "done"


async def test_a_branch_that_waits_for_something_of_its_own_is_stopped(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        async def own() -> None:
            if not lab.did:
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    lab.did.append("stopped")
                    raise

        sleeping = asyncio.create_task(ctx.sleep(60))
        await own()
        await sleeping
        return "done"

    began = time.monotonic()
    handle = await lab.submitted(job.call())
    assert lab.did == ["stopped"]
    assert time.monotonic() - began < 20
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "done"


async def test_calls_after_the_end_of_the_handler_are_refused(lab: Lab) -> None:
    async def work() -> None:
        lab.did.append("work")

    tasks: list[asyncio.Task[None]] = []

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        async def later() -> None:
            await asyncio.sleep(0.1)
            with pytest.raises(LeaseLost):
                await ctx.step("work", work)
            lab.did.append("told")

        tasks.append(asyncio.create_task(later()))
        await ctx.sleep(0)
        return "done"

    handle = await lab.submitted(job.call())
    await asyncio.gather(*tasks)

    assert await handle.result(5) == "done"
    assert lab.did == ["told"]


async def test_parks_of_many_handlers_share_their_statements(
    lab: Lab, client: Client, statements: Statements
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx, number: int) -> None:
        await ctx.sleep(600)

    await client.submit_many(job.many(range(200)))
    statements.sent.clear()
    await lab.run(concurrency=200)

    assert await lab.db.fetchval("SELECT count(*) FROM ff.journal WHERE state = 'open'") == 200
    assert statements.sent["journal.record_entries"] < 60
    assert statements.sent["lifecycle.delay"] < 60


async def test_a_slot_runs_the_next_handler_while_a_sleeper_is_being_parked(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "_QUIET_FOR", 0.5)
    running: list[int] = []

    @lab.app.task("sleeper")
    async def sleeper(ctx: Ctx, number: int) -> None:
        running.append(number)
        lab.did.append(len(running))
        await asyncio.sleep(0)
        running.remove(number)
        await ctx.sleep(600)

    await lab.client.submit_many(sleeper.many(range(40)))
    await lab.run(concurrency=2)

    together = await lab.db.fetchval(
        "SELECT count(*) FROM ff.journal"
        " WHERE started_at_ms < (SELECT min(recorded_at_ms) FROM ff.journal)"
    )
    assert together > 4, "handlers that slept before the first of them was parked"
    assert await lab.db.fetchval("SELECT count(*) FROM ff.journal WHERE state = 'open'") == 40
    assert max(lab.did) <= 2, "no more handlers run at a time than there are slots"


async def test_a_journal_that_could_not_be_read_ahead_is_read_again(
    lab: Lab, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    @lab.app.task("sleeper")
    async def sleeper(ctx: Ctx) -> None:
        await ctx.step("work", lambda: lab.did.append("worked"))
        await ctx.sleep(60)

    handle = await lab.submitted(sleeper.call())
    await clock.advance(60)
    read, reads = Engine.read_journal, list[int]()

    async def failing(self: Engine, executions: Any) -> Any:
        reads.append(len(executions))
        if len(reads) == 1:
            raise TransportError("read_journal", "the connection is gone")
        return await read(self, executions)

    monkeypatch.setattr(Engine, "read_journal", failing)
    await lab.run()

    await handle.result(5)
    assert reads == [1, 1]
    assert lab.did == ["worked"]


@pytest.mark.direct("counts statements")
async def test_the_waits_of_all_running_handlers_are_looked_at_with_one_statement_a_second(
    lab: Lab, statements: Statements
) -> None:
    await lab.seed_key()
    gate = asyncio.Event()

    @lab.app.task("child")
    async def child(ctx: Ctx) -> str:
        return "child"

    @lab.app.task("job")
    async def job(ctx: Ctx, number: int) -> list[Any]:
        async def work() -> None:
            await gate.wait()

        wp = await ctx.waitpoint("approve", expires=600)
        lab.did.append(number)
        done = await asyncio.gather(
            ctx.step("work", work),
            ctx.wait_for_signal("go", type=int),
            ctx.wait(wp.named("approve")),
            ctx.gather([child.call()]),
        )
        return [*done]

    looks: dict[str, int] = {}
    async with lab.app.worker(dsn=lab.dsn):
        handles = await lab.client.submit_many(job.many(range(10)))
        await eventually(lambda: _all(lab, 10))
        for _ in range(20):  # until the children have ended, and every handler knows
            statements.sent.clear()
            await asyncio.sleep(1.5)
            looks = {
                name: count
                for name, count in statements.sent.items()
                if any(word in name for word in ("waits", "inbox", "waitpoint", "join"))
            }
            if looks.keys() == {"executions.look_at_waits"}:
                break
        assert looks.keys() == {"executions.look_at_waits"}
        assert looks["executions.look_at_waits"] <= 2
        for number, handle in enumerate(handles):
            await lab.signal(handle, "go", number)
        await eventually(lambda: _recorded(lab, "go", 10))
        gate.set()


async def _all(lab: Lab, count: int) -> bool:
    return len(lab.did) >= count


async def _recorded(lab: Lab, name: str, count: int) -> bool:
    done = "SELECT count(*) FROM ff.journal WHERE name = $1 AND state = 'done'"
    return await lab.db.fetchval(done, name) == count


async def test_a_branch_that_goes_on_while_its_slot_is_lent_runs_and_no_other_begins(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "_QUIET_FOR", 0.5)
    began, gate = asyncio.Event(), asyncio.Event()

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        async def work() -> None:
            began.set()
            await gate.wait()

        async def branch() -> None:
            await asyncio.sleep(0.05)
            await ctx.step("work", work)

        beside = asyncio.create_task(branch())
        await ctx.sleep(60)
        await beside

    @lab.app.task("other")
    async def other(ctx: Ctx) -> None:
        lab.did.append("other")

    first = await lab.client.submit(job.call())
    async with lab.app.worker(dsn=lab.dsn, concurrency=1):
        await began.wait()
        await asyncio.sleep(0.6)  # the slot is lent no more
        second = await lab.client.submit(other.call())
        await asyncio.sleep(0.3)
        assert lab.did == [], "the step of the first runs in the only slot"
        gate.set()
        await second.result(10)
        await eventually(lambda: _is(lab, first, "delayed"))


async def test_progress_beside_a_wait_is_stored_before_the_park(lab: Lab, clock: Clock) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        await asyncio.gather(ctx.sleep(60), ctx.progress(30, "waits"))
        return "done"

    handle = await lab.submitted(job.call())

    assert (await lab.row(handle))["progress_message"] == "waits"


async def test_progress_is_not_told_again_while_the_attempt_repeats_what_it_did(
    lab: Lab, clock: Clock, statements: Statements
) -> None:
    async def work() -> None: ...

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        await ctx.progress(10)
        await ctx.step("work", work)
        await ctx.progress(20)
        await ctx.sleep(60)
        await ctx.progress(30)
        return "done"

    handle = await lab.submitted(job.call())
    statements.sent.clear()
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "done"
    assert statements.sent["lifecycle.progress"] == 1
