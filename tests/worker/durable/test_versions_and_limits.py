"""Versions of a handler, the limits of its journal, and what durable calls cost."""

import asyncio
from typing import Any

import pytest

from flowfabric import (
    App,
    Ctx,
    Engine,
    ExecutionFailed,
    JournalFull,
    Retry,
    StepFailed,
)
from flowfabric.testing import Clock
from flowfabric.worker.durable import journal as journal_module
from tests.worker.durable.lab import Lab, Statements

pytestmark = pytest.mark.timeout(60)


def step_of(lab: Lab, name: str) -> Any:
    async def body() -> str:
        lab.did.append(name)
        return name

    return body


async def test_an_execution_that_began_before_a_patch_keeps_the_old_way(
    lab: Lab, clock: Clock
) -> None:
    patched = [False]

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        way = "new" if patched[0] and ctx.patched("audit") else "old"
        await ctx.step("charge", step_of(lab, "charge"))
        await ctx.sleep(60)
        if patched[0]:
            assert ctx.patched("audit") is (way == "new")
        return way

    before = await lab.submitted(job.call())
    patched[0] = True
    after = await lab.submitted(job.call())
    for _ in range(2):
        await clock.advance(60)
        await lab.run()

    assert await before.result(5) == "old"
    assert await after.result(5) == "new"
    assert "patch:audit#0 done" in await lab.journal(before)


async def test_a_patch_beyond_what_was_recorded_is_taken(lab: Lab, clock: Clock) -> None:
    patched = [False]

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        await ctx.sleep(60)
        return "new" if patched[0] and ctx.patched("audit") else "old"

    handle = await lab.submitted(job.call())
    patched[0] = True
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "new"


async def test_a_patch_whose_if_was_removed_is_no_divergence(lab: Lab, clock: Clock) -> None:
    patched = [True]

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        if patched[0]:
            assert ctx.patched("audit")
        await ctx.step("charge", step_of(lab, "charge"))
        await ctx.sleep(60)
        return "done"

    handle = await lab.submitted(job.call())
    patched[0] = False
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "done"


async def test_the_version_is_that_with_which_the_execution_began(lab: Lab, clock: Clock) -> None:
    handles = []
    for version in (0, 2, 3):
        lab.app = App()

        @lab.app.task("job", version=version)
        async def job(ctx: Ctx) -> int:
            await ctx.step("charge", step_of(lab, "charge"))
            await ctx.sleep(60)
            return ctx.version

        handles.append(await lab.submitted(job.call()))
    await clock.advance(60)
    await lab.run()

    assert [await each.result(5) for each in handles] == [0, 2, 3]


# Limits.


async def test_a_journal_that_is_full_ends_the_execution_before_the_step_runs(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "MAX_ENTRIES", 3)
    monkeypatch.setattr(journal_module, "ADVISED_ENTRIES", 2)
    advised: list[bool] = []

    @lab.app.task("job", retry=Retry(max_retries=5, initial=0))
    async def job(ctx: Ctx) -> None:
        for number in range(4):
            try:
                await ctx.step("work", step_of(lab, f"work {number}"))
            except JournalFull:
                lab.did.append("full")
                raise
            advised.append(ctx.restart_advised)

    handle = await lab.submitted(job.call())

    assert await lab.state(handle) == "failed"
    assert lab.did == ["work 0", "work 1", "work 2", "full"]
    assert advised == [False, True, True]
    assert len(await handle.attempts()) == 1


async def test_the_bytes_of_a_journal_are_limited_too(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "MAX_JOURNAL_BYTES", 2000)

    async def large() -> str:
        lab.did.append("large")
        return "x" * 1500

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        for _ in range(5):
            await ctx.step("large", large)

    handle = await lab.submitted(job.call())

    assert await lab.state(handle) == "failed"
    assert lab.did == ["large", "large"]


async def test_a_journal_has_at_most_ten_thousand_entries(lab: Lab, clock: Clock) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        await ctx.sleep(60)
        lab.did.append(ctx.restart_advised)
        await ctx.step("last", step_of(lab, "last"))
        await ctx.step("too many", step_of(lab, "too many"))

    handle = await lab.submitted(job.call())
    [sleep] = await lab.entries(handle)
    await lab.db.execute(
        "INSERT INTO ff.journal (partition_key, seq, execution_id, attempt_index, occurrence,"
        " started_at_ms, recorded_at_ms, kind, state, name)"
        " SELECT $1, $2 + n, $3, 0, n, 0, 0, 'now', 'done', 'now' FROM generate_series(1, 9998) n",
        sleep["partition_key"],
        sleep["seq"],
        sleep["execution_id"],
    )
    await clock.advance(60)
    await lab.run()

    with pytest.raises(ExecutionFailed, match="JournalFull"):
        await handle.result(5)
    assert lab.did == [True, "last"]
    assert len(await lab.entries(handle)) == 10_000


async def test_a_journal_has_at_most_sixteen_mebibytes(lab: Lab, clock: Clock) -> None:
    async def large(size: int) -> str:
        lab.did.append(size)
        return "x" * (size - 2)  # with its quotes

    mebibyte, quarter = 1024 * 1024, 256 * 1024

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        await ctx.sleep(60)
        await ctx.step("to the limit", large, quarter)
        await ctx.step("past it", large, 2)
        await ctx.step("too much", large, 2)

    handle = await lab.submitted(job.call())
    [sleep] = await lab.entries(handle)
    await lab.db.execute(
        "INSERT INTO ff.journal (partition_key, seq, execution_id, attempt_index, occurrence,"
        " started_at_ms, recorded_at_ms, kind, state, name, encoding, value)"
        " SELECT $1, $2 + n, $3, 0, n, 0, 0, 'now', 'done', 'now', 'raw', $4"
        " FROM generate_series(1, 63) n",
        sleep["partition_key"],
        sleep["seq"],
        sleep["execution_id"],
        bytes(quarter),
    )
    await clock.advance(60)
    await lab.run()

    with pytest.raises(ExecutionFailed, match="JournalFull"):
        await handle.result(5)
    assert lab.did == [quarter, 2]
    sizes = [len(entry["value"] or b"") for entry in await lab.entries(handle)]
    assert sum(sizes) == 16 * mebibyte + 2


async def test_a_restart_is_advised_from_four_mebibytes_and_a_value_has_a_quarter_of_one(
    lab: Lab,
) -> None:
    async def large(more: int) -> str:
        return "x" * (256 * 1024 - 2 + more)  # with its quotes

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        for number in range(17):
            await ctx.step("large", large, 0, key=str(number))
            lab.did.append(ctx.restart_advised)
        with pytest.raises(StepFailed) as failed:
            await ctx.step("larger", large, 1)
        return failed.value.category

    handle = await lab.submitted(job.call())

    assert await handle.result(10) == "result_too_large"
    assert lab.did == [False] * 15 + [True] * 2


# What it costs.


async def test_a_handler_without_durable_calls_costs_no_statement(
    lab: Lab, statements: Statements
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> int:
        return 1

    await lab.submitted(job.call())

    sent = statements.of("journal", "suspensions.read")
    assert {
        name: count for name, count in sent.items() if name != "journal.compensations_due"
    } == {}


async def test_a_step_is_one_statement_and_chance_is_none(lab: Lab, statements: Statements) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> int:
        ctx.random()
        ctx.uuid()
        for _ in range(10):
            await ctx.step("work", step_of(lab, "work"))
        return 1

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == 1
    sent = {
        name: count for name, count in statements.of("journal").items() if "compens" not in name
    }
    assert sent == {"journal.record_entries": 10}


async def test_gathered_steps_share_their_statements(lab: Lab, statements: Statements) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> int:
        await asyncio.gather(*[ctx.step(f"s{n}", step_of(lab, f"s{n}")) for n in range(100)])
        return 1

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == 1
    assert statements.sent["journal.record_entries"] <= 5


async def test_a_flush_has_at_most_five_hundred_entries_and_one_runs_at_a_time(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, flushing = Engine.record_entries, [0]

    async def flushed(self: Engine, writes: Any) -> Any:
        flushing[0] += 1
        lab.did.append((len(writes), flushing[0]))
        try:
            return await record(self, writes)
        finally:
            flushing[0] -= 1

    monkeypatch.setattr(Engine, "record_entries", flushed)

    async def nothing() -> None: ...

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        await asyncio.gather(*[ctx.step("s", nothing, key=str(number)) for number in range(1200)])

    handle = await lab.submitted(job.call())

    assert await lab.state(handle) == "completed"
    assert sum(size for size, _ in lab.did) == 1200
    assert max(size for size, _ in lab.did) <= 500
    assert {running for _, running in lab.did} == {1}


async def test_a_wake_with_many_entries_costs_two_reads(
    lab: Lab, clock: Clock, statements: Statements
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> int:
        await asyncio.gather(*[ctx.step(f"s{n}", step_of(lab, f"s{n}")) for n in range(1000)])
        await ctx.sleep(60)
        before = dict(statements.of("journal.read", "suspensions.read", "executions.read"))
        lab.did.append(before)
        return 1

    handle = await lab.submitted(job.call())
    statements.sent.clear()
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == 1
    assert sum(lab.did[-1].values()) <= 2
    assert len(lab.did) == 1001


async def test_handlers_that_wake_together_share_the_reads_of_their_journals(
    lab: Lab, clock: Clock, statements: Statements
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx, number: int) -> int:
        found = await ctx.step("work", int, number)
        await ctx.sleep(60)
        return found

    handles = await lab.client.submit_many(job.many(range(50)))
    await lab.run(concurrency=50)
    statements.sent.clear()
    await clock.advance(60)
    await lab.run(concurrency=50)

    assert [await each.result(5) for each in handles] == list(range(50))
    assert statements.sent["journal.read_journal"] <= 10


async def test_a_park_writes_an_open_entry_once(lab: Lab, clock: Clock) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        async def long() -> None:
            await ctx.sleep("long", 600)

        async def short() -> None:
            await ctx.sleep("short", 60)
            await ctx.sleep("second", 60)

        await asyncio.gather(long(), short())

    handle = await lab.submitted(job.call())
    written = {row["name"]: row["recorded_at_ms"] for row in await lab.entries(handle)}
    await clock.advance(60)
    await lab.run()
    again = {row["name"]: row["recorded_at_ms"] for row in await lab.entries(handle)}

    assert again["long"] == written["long"]
    assert again["second"] > written["long"]
    assert await lab.state(handle) == "delayed"


async def test_a_failure_that_was_got_over_is_the_same_after_a_crash_of_the_worker(
    lab: Lab, clock: Clock
) -> None:
    async def charge() -> None:
        lab.did.append("charge")
        raise OSError("busy")

    @lab.app.task("job", retry=Retry(max_retries=1, initial=0))
    async def job(ctx: Ctx) -> str:
        with pytest.raises(StepFailed):
            await ctx.step("charge", charge)
        await ctx.step("mail", step_of(lab, "mail"))
        if ctx.attempt_index == 0:
            raise OSError("the power is gone")
        return "done"

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "done"
    assert lab.did == ["charge", "mail"]
