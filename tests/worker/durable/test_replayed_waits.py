"""A handler that ended while it waited at a waitpoint is replayed: it waits there again."""

from datetime import timedelta
from typing import Any

import pytest

from flowfabric import Ctx, Handle
from flowfabric.engine.suspensions.expire_suspension import expire_suspension
from flowfabric.engine.suspensions.list_pending_waitpoints import list_pending_waitpoints
from flowfabric.testing import Clock
from tests.worker.durable.doors import deliver
from tests.worker.durable.lab import Lab

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
async def seeded(lab: Lab) -> None:
    await lab.seed_key()


async def ended(lab: Lab, clock: Clock, how: str) -> Handle[Any]:
    """A handler that was cancelled, or timed out, at its waitpoint; `lab.did` has the waitpoint."""

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[str]:
        waitpoint = await ctx.waitpoint("approve", expires=timedelta(hours=10))
        lab.did.append(waitpoint)
        on_timeout: Any = "fail" if how == "operator" else how
        signals = await ctx.wait(waitpoint.any(), timeout=60, on_timeout=on_timeout)
        return [each.signal_name for each in signals]

    handle = await lab.submitted(job.call())
    if how == "operator":
        await handle.cancel("a mistake")
    else:
        await clock.advance(61)
        async with lab.db.transaction():
            await expire_suspension(lab.db, handle.execution_id)
        await lab.run()
    return handle


ENDS = {"operator": "cancelled", "fail": "failed", "cancel": "cancelled", "expire": "expired"}


@pytest.mark.parametrize("how", ENDS)
async def test_a_replay_waits_again_at_the_waitpoint_that_the_end_closed(
    lab: Lab, clock: Clock, how: str
) -> None:
    handle = await ended(lab, clock, how)
    assert await lab.state(handle) == ENDS[how]

    await handle.replay("once more")
    await lab.run()

    assert await lab.state(handle) == "suspended"
    first, again = lab.did[0], lab.did[-1]
    assert first.waitpoint_id == again.waitpoint_id
    await deliver(lab, handle, first, "yes")
    await lab.run()
    assert await handle.result(5) == ["yes"]


async def test_a_replay_from_before_a_waitpoint_makes_it_anew(lab: Lab, clock: Clock) -> None:
    handle = await ended(lab, clock, "fail")
    await clock.advance(timedelta(hours=11))

    await handle.replay("once more", from_step="approve")
    await lab.run()

    assert await lab.state(handle) == "suspended"
    [waitpoint] = (await list_pending_waitpoints(lab.db, handle.execution_id)).waitpoints
    assert waitpoint.created_at > await clock.now() - timedelta(minutes=1)
    await deliver(lab, handle, lab.did[-1], "yes")
    await lab.run()
    assert await handle.result(5) == ["yes"]


async def test_signals_that_were_consumed_are_not_asked_for_again(lab: Lab) -> None:
    failed: list[bool] = []

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        waitpoint = await ctx.waitpoint("approve", expires=600)
        lab.did.append(waitpoint)
        [signal] = await ctx.wait(waitpoint.any(), timeout=60)
        if not failed:
            failed.append(True)
            raise RuntimeError("after the approval")
        return signal.signal_name

    handle = await lab.submitted(job.call())
    await deliver(lab, handle, lab.did[-1], "yes")
    await lab.run()

    await handle.replay("once more")
    await lab.run()

    assert await handle.result(5) == "yes"
    assert not (await lab.engine.list_open_waitpoints()).waitpoints
    events = "SELECT count(*) FROM ff.operator_event WHERE event_type = 'waitpoint_closed'"
    assert await lab.db.fetchval(events) == 0
