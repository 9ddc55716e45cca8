"""Waitpoints: outsiders with a token signal a handler."""

import asyncio
from typing import Any

import pytest

from flowfabric import Ctx, SignalTimeout, ValidationError
from flowfabric.db.rows import Connection
from flowfabric.db.steps import COMMIT, stepped
from flowfabric.engine.executions.words import at
from flowfabric.instants import epoch_ms, instant
from flowfabric.testing import Clock
from flowfabric.worker.durable.waitpoints import HandlerWaitpoint
from tests.worker.durable.doors import deliver, names, waiting
from tests.worker.durable.lab import Lab

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("seeded")]


async def test_a_waitpoint_is_the_same_whenever_the_handler_runs(lab: Lab, clock: Clock) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        waitpoint = await ctx.waitpoint("approve", expires=600)
        other = await ctx.waitpoint("n" * 128, expires=600, key="k" * 256)
        lab.did.append((waitpoint.waitpoint_id, waitpoint.token.reveal(), other.waitpoint_id))
        await ctx.sleep(60)
        return repr(waitpoint)

    handle = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()

    first, second = lab.did
    assert first == second
    assert first[0] != first[2]
    assert first[1] not in await handle.result(5)
    assert all(first[1].encode() not in (row["value"] or b"") for row in await lab.entries(handle))


@pytest.mark.direct("cuts the worker's own connections")
async def test_a_connection_that_is_cut_leaves_both_waitpoint_and_entry_or_neither(
    lab: Lab, db: Connection
) -> None:
    """The connection is cut before each statement of the call in turn, the commit among them."""
    seen: list[str] = []

    async def cut(conn: Connection, name: str) -> None:
        """The first call is cut before its first statement, the next before its second …"""
        if len(seen) == len(lab.did):
            lab.did.append(name)
            seen.clear()
            pid = await conn.fetchval("SELECT pg_backend_pid()")
            await db.execute("SELECT pg_terminate_backend($1)", pid)
            assert await written(db) == [0, 0]
        else:
            seen.append(name)

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        with stepped(cut):
            await ctx.waitpoint("approve", expires=600)

    await lab.submitted(job.call())

    assert lab.did[-1] == COMMIT
    assert await written(db) == [1, 1]
    assert await db.fetchval(
        "SELECT w.xmin = j.xmin FROM ff.waitpoint_pending w"
        " JOIN ff.journal j USING (partition_key, execution_id)"
    )


async def written(db: Connection) -> list[int]:
    """How many waitpoints, and entries of them, there are."""
    return [
        await db.fetchval("SELECT count(*) FROM ff.waitpoint_pending"),
        await db.fetchval("SELECT count(*) FROM ff.journal WHERE kind = 'waitpoint'"),
    ]


async def test_a_signal_of_a_name(lab: Lab) -> None:
    handle, [a, _] = await waiting(lab, lambda a, _: a.named("approve"))
    assert await lab.state(handle) == "suspended"
    assert await lab.detail(handle) == "waits for signals on 'a'"

    await deliver(lab, handle, a, "reject")
    await lab.run()
    assert await lab.state(handle) == "suspended"
    await deliver(lab, handle, a, "approve", "bob")
    await lab.run()

    assert await handle.result(5) == ["approve bob"]


async def test_any_signal(lab: Lab) -> None:
    handle, [a, _] = await waiting(lab, lambda a, _: a.any())

    await deliver(lab, handle, a, "whatever")
    await lab.run()

    assert await handle.result(5) == ["whatever ann"]


async def test_a_number_of_signals_from_different_sources(lab: Lab) -> None:
    condition = lambda a, _: a.count(2, distinct="sources", name="approve")  # noqa: E731
    handle, [a, _] = await waiting(lab, condition)

    for source in ("ann", "ann", "bob"):
        assert await lab.state(handle) == "suspended"
        await deliver(lab, handle, a, "approve", source)
        await lab.run()

    assert await handle.result(5) == ["approve ann", "approve bob"]


async def test_signals_on_two_waitpoints(lab: Lab) -> None:
    handle, [a, b] = await waiting(lab, lambda a, b: a.named("ok") & b.any())

    await deliver(lab, handle, b, "first")
    await lab.run()
    assert await lab.state(handle) == "suspended"
    await deliver(lab, handle, a, "ok")
    await lab.run()

    assert sorted(await handle.result(5)) == ["first ann", "ok ann"]


async def test_a_signal_that_came_before_the_wait_counts(lab: Lab, clock: Clock) -> None:
    made: list[HandlerWaitpoint] = []

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[str]:
        made[:] = [await ctx.waitpoint("a", expires=6000)]
        await ctx.sleep(60)
        signals = await ctx.wait(made[0].any())
        await ctx.sleep(60)
        return names(signals)

    handle = await lab.submitted(job.call())
    await deliver(lab, handle, made[0], "early")
    for _ in range(2):
        await clock.advance(60)
        await lab.run()

    assert await handle.result(5) == ["early ann"]


async def test_a_wait_that_times_out_raises_in_every_run(lab: Lab, clock: Clock) -> None:
    handle, [a, _] = await waiting(lab, lambda a, _: a.any(), timeout=60)

    await clock.advance(61)
    await deliver(lab, handle, a, "late")
    await lab.run()

    assert await handle.result(5) == ["'wait' did not come in time"]


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(
    ("on_timeout", "state", "reason"),
    [
        ("fail", "failed", "suspension_timeout:fail"),
        ("cancel", "cancelled", "suspension_timeout_cancel"),
        ("expire", "expired", "suspension_timeout_expire"),
    ],
)
async def test_a_timeout_ends_the_execution_also_if_the_handler_waits_for_something_beside(
    lab: Lab, clock: Clock, on_timeout: Any, state: str, reason: str, beside: bool
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        waitpoint = await ctx.waitpoint("a", expires=6000)
        waits: list[Any] = [ctx.wait(waitpoint.any(), timeout=60, on_timeout=on_timeout)]
        if beside:
            waits.append(ctx.wait_for_signal("never"))
        await asyncio.gather(*waits)

    handle = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()

    row = await lab.row(handle)
    assert row["public_state"] == state
    assert reason in (row["failure_reason"], row["cancellation_reason"])


@pytest.mark.parametrize("beside", [False, True])
async def test_a_timeout_is_escalated_to_an_operator_and_the_wait_goes_on(
    lab: Lab, clock: Clock, beside: bool
) -> None:
    made: list[HandlerWaitpoint] = []

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[str]:
        made[:] = [await ctx.waitpoint("a", expires=6000)]
        waits: list[Any] = [ctx.wait(made[0].any(), timeout=60, on_timeout="escalate")]
        if beside:
            waits.append(ctx.wait_for_signal("go", timeout=600, default=None))
        return names((await asyncio.gather(*waits))[0])

    handle = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()
    row = await lab.row(handle)
    assert (row["public_state"], row["blocking_reason"]) == ("suspended", "paused_by_operator")

    await deliver(lab, handle, made[0], "at last")
    await lab.run()
    await lab.signal(handle, "go") if beside else None
    await lab.run()

    assert await handle.result(5) == ["at last ann"]


async def test_a_wait_for_a_waitpoint_that_expires_has_timed_out(lab: Lab, clock: Clock) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        waitpoint = await ctx.waitpoint("a", expires=60)
        await ctx.sleep(61)
        with pytest.raises(SignalTimeout):
            await ctx.wait(waitpoint.any())
        return "told"

    handle = await lab.submitted(job.call())
    await clock.advance(61)
    await lab.run()

    assert await handle.result(5) == "told"


async def test_a_suspended_wait_without_a_timeout_ends_when_its_waitpoint_expires(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        waitpoint = await ctx.waitpoint("a", expires=60)
        try:
            await ctx.wait(waitpoint.any())
        except SignalTimeout as error:
            lab.did.append((error.name, error.closed))
        await ctx.sleep(60)
        return "told"

    handle = await lab.submitted(job.call())
    expires = instant(await clock.now_ms() + 60_000)
    [reason] = (await handle.explain()).reasons
    assert f"('a#0' expires {at(epoch_ms(expires))}, then it goes on without)" in reason.message
    assert reason.clears_at == expires

    await clock.advance(59.9)
    await lab.run()
    assert await lab.state(handle) == "suspended"
    await clock.advance(0.1)
    await lab.run()
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "told"
    assert lab.did == [("wait", None)] * 2
    assert (await lab.row(handle))["lease_epoch"] == 3


@pytest.mark.parametrize(
    ("on_timeout", "state"),
    [
        ("fail", "failed"),
        ("cancel", "cancelled"),
        ("expire", "expired"),
        ("escalate", "suspended"),
    ],
)
async def test_the_expiry_of_a_waitpoint_does_what_a_timeout_does(
    lab: Lab, clock: Clock, on_timeout: Any, state: str
) -> None:
    handle, made = await waiting(lab, lambda a: a.any(), expires=(60,), on_timeout=on_timeout)
    await clock.advance(60)
    await lab.run()
    assert await lab.state(handle) == state

    if on_timeout == "escalate":
        assert (await lab.row(handle))["blocking_reason"] == "paused_by_operator"
        await deliver(lab, handle, made[0], "at last")
        await lab.run()
        assert await handle.result(5) == ["at last ann"]


async def test_an_escalated_wait_whose_waitpoint_has_expired_says_what_an_operator_can_do(
    lab: Lab, clock: Clock
) -> None:
    handle, made = await waiting(lab, lambda a: a.any(), expires=(60,), on_timeout="escalate")
    await clock.advance(60)
    await lab.run()
    await lab.engine.resume_execution(handle.execution_id)
    await lab.run()

    [reason] = (await handle.explain()).reasons
    assert "has to decide: it waits for signals on 'a', in vain since " in reason.message
    assert reason.message.endswith(
        "; no signal can let it go on any more: its waitpoints have expired"
    )
    own = f"'{handle.execution_id}'"
    assert reason.remedy.startswith(f"end it: ff executions cancel {own}; ")
    assert f"ff executions replay {own} --from-step NAME" in reason.remedy

    await handle.cancel()
    await lab.engine.replay_execution(handle.execution_id, from_step="a")
    await lab.run()
    await deliver(lab, handle, made[0], "at last")
    await lab.run()
    assert await handle.result(5) == ["at last ann"]


async def test_what_has_come_counts_also_after_its_waitpoint_has_expired(
    lab: Lab, clock: Clock
) -> None:
    handle, made = await waiting(lab, lambda a, b: a.any() & b.any(), expires=(60, 600))
    await deliver(lab, handle, made[0], "first")
    await clock.advance(60)
    await lab.run()
    assert await lab.state(handle) == "suspended"
    [reason] = (await handle.explain()).reasons
    assert "(any signal on 'b#0')" in reason.message
    assert "('b#0' expires" in reason.message

    await deliver(lab, handle, made[1], "second")
    await lab.run()

    assert await handle.result(5) == ["first ann", "second ann"]


async def test_a_condition_over_two_waitpoints_has_timed_out_when_one_expires_without_its_signal(
    lab: Lab, clock: Clock
) -> None:
    made: list[HandlerWaitpoint] = []

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        made[:] = [await ctx.waitpoint("a", expires=60), await ctx.waitpoint("b", expires=600)]
        with pytest.raises(SignalTimeout):
            await ctx.wait(made[0].any() & made[1].any())
        return "told"

    handle = await lab.submitted(job.call())
    await deliver(lab, handle, made[1], "second")
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "told"


async def test_a_wait_beside_a_running_step_ends_when_its_waitpoint_expires(lab: Lab) -> None:
    gate = asyncio.Event()

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        waitpoint = await ctx.waitpoint("a", expires=0.5)

        async def waiting() -> str:
            try:
                await ctx.wait(waitpoint.any())
            except SignalTimeout:
                gate.set()
            return "told"

        return (await asyncio.gather(waiting(), ctx.step("work", gate.wait)))[0]

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "told"
    assert (await lab.row(handle))["lease_epoch"] == 1


async def test_a_waitpoint_beside_a_running_step(lab: Lab) -> None:
    made: list[HandlerWaitpoint] = []
    gate = asyncio.Event()

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[str]:
        made[:] = [await ctx.waitpoint("a", expires=600)]

        async def waiting() -> list[str]:
            found = names(await ctx.wait(made[0].any()))
            gate.set()
            return found

        async def work() -> bool:
            await deliver(lab, ctx, made[0], "now")
            return await gate.wait()

        found, _ = await asyncio.gather(waiting(), ctx.step("work", work))
        return found

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == ["now ann"]
    assert (await lab.row(handle))["lease_epoch"] == 1


async def test_a_condition_that_can_never_hold_is_refused(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        waitpoint = await ctx.waitpoint("a", expires=600)
        with pytest.raises(ValidationError):
            await ctx.wait(waitpoint.count(0))
        with pytest.raises(ValidationError, match="on_timeout"):
            await ctx.wait(waitpoint.any(), on_timeout="panic")  # pyright: ignore[reportArgumentType]
        return "told"

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "told"
