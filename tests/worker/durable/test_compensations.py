"""Compensations: they run unless the execution succeeds, the last armed first."""

import asyncio
from typing import Any

import pytest

from flowfabric import Ctx, Fail
from flowfabric.db.rows import Connection
from flowfabric.testing import Clock
from tests.worker.durable.lab import Lab
from tests.worker.facts import eventually

pytestmark = pytest.mark.timeout(60)


async def armed(lab: Lab, how: str, clock: Clock | None = None) -> Any:
    """A handler that arms two compensations, sleeps, and ends in some way."""

    @lab.app.task("undo")
    async def undo(ctx: Ctx, what: str) -> None:
        lab.did.append(f"undo {what}")
        if what == "second" and how == "broken undo":
            raise Fail("cannot undo", retryable=False)

    @lab.app.task("job", deadline=100)
    async def job(ctx: Ctx) -> str:
        await ctx.compensate(undo.call("first"))
        if how == "disarm":
            await ctx.disarm()
        await ctx.compensate(undo.call("second"))
        await ctx.sleep(60)
        if how in ("fail", "broken undo", "disarm"):
            raise Fail("no luck", retryable=False)
        return "done"

    return await lab.submitted(job.call())


async def _did(lab: Lab, count: int) -> bool:
    return len(lab.did) >= count


@pytest.mark.parametrize("how", ["fail", "cancel", "expire"])
async def test_they_run_last_first_however_the_execution_ended_without_success(
    lab: Lab, clock: Clock, how: str
) -> None:
    handle = await armed(lab, how)
    if how == "cancel":
        await handle.cancel()
    await clock.advance(101 if how == "expire" else 60)
    async with lab.app.worker(dsn=lab.dsn):
        await eventually(lambda: _did(lab, 2), within=20)

    assert lab.did == ["undo second", "undo first"]
    assert await lab.state(handle) == {"fail": "failed", "cancel": "cancelled"}.get(how, "expired")


async def test_the_limit_of_a_task_counts_its_compensations(
    lab: Lab, clock: Clock, db: Connection
) -> None:
    per_bank = lab.app.limit("per-bank", concurrency=1)

    @lab.app.task("undo", limit=per_bank, limit_key=lambda bank: bank)
    async def undo(ctx: Ctx, bank: str) -> None:
        lab.did.append(bank)

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        await ctx.compensate(undo.call("b-1"))
        raise Fail("no luck", retryable=False)

    await lab.submitted(job.call())
    async with lab.app.worker(dsn=lab.dsn):
        await eventually(lambda: _did(lab, 1), within=20)

    limited = await db.fetchrow(
        "SELECT quota_policy_id, quota_dimension FROM ff.exec_body JOIN ff.exec_core e"
        " USING (partition_key, execution_id) JOIN ff.route r USING (route_id)"
        " WHERE r.execution_kind = 'undo'"
    )
    assert limited is not None
    assert tuple(limited.values()) == (per_bank.quota_policy_id, "b-1")


async def test_they_do_not_run_after_a_success(lab: Lab, clock: Clock) -> None:
    handle = await armed(lab, "succeed")
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "done"
    assert lab.did == []
    assert await lab.db.fetchval("SELECT count(*) FROM ff.execution") == 1


async def test_one_that_fails_does_not_stop_the_others_and_fails_the_compensation(
    lab: Lab, clock: Clock
) -> None:
    await armed(lab, "broken undo")
    await clock.advance(60)
    await lab.run()

    assert lab.did == ["undo second", "undo first"]
    state = await lab.db.fetchval(
        "SELECT public_state FROM ff.execution JOIN ff.route USING (route_id)"
        " WHERE execution_kind = 'ff.compensate'"
    )
    assert state == "failed"


async def test_a_kind_may_be_longer_than_the_name_of_an_entry(lab: Lab) -> None:
    @lab.app.task("u" * 256)
    async def undo(ctx: Ctx) -> None:
        lab.did.append("undo")

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        await ctx.compensate(undo.call())
        raise Fail("no luck", retryable=False)

    handle = await lab.submitted(job.call())

    assert await lab.journal(handle) == ["u" * 128 + "#0 done"]
    assert lab.did == ["undo"]


async def test_what_was_disarmed_does_not_run(lab: Lab, clock: Clock) -> None:
    await armed(lab, "disarm")
    await clock.advance(60)
    await lab.run()

    assert lab.did == ["undo second"]


async def test_the_worker_that_records_the_failure_starts_them_at_once(lab: Lab) -> None:
    @lab.app.task("undo")
    async def undo(ctx: Ctx) -> None:
        lab.did.append("undone")

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        await ctx.compensate(undo.call())
        raise Fail("no luck", retryable=False)

    await lab.client.submit(job.call())
    async with lab.app.worker(dsn=lab.dsn, reconcile=False):
        await eventually(lambda: lab.did)
        await asyncio.sleep(0)
