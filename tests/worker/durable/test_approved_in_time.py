"""A signal that was accepted in time is not lost, however late a worker takes up the handler."""

from collections.abc import Awaitable, Callable

import pytest

from flowfabric import App, Client, Ctx, PublicState
from flowfabric.client.open_engine import on_database
from flowfabric.errors import SignalTimeout
from flowfabric.testing import Clock


@pytest.mark.parametrize("timeout", [60, None])
@pytest.mark.direct("seeds a key by its engine")
async def test_an_approval_that_came_in_time_is_found_after_its_waitpoint_expired(
    ff_dsn: str,
    client: Client,
    ff_clock: Clock,
    ff_sweep: Callable[[], Awaitable[int]],
    timeout: float | None,
) -> None:
    await on_database(client.engine).seed_waitpoint_hmac_secret("k", "ab" * 32)
    app = App()

    @app.task("deploy")
    async def deploy(ctx: Ctx) -> str:
        door = await ctx.waitpoint("door", expires=60)
        try:
            [signal] = await ctx.wait(door.any(), timeout=timeout)
        except SignalTimeout:
            return "timed out"
        return signal.signal_name

    handle = await client.submit(deploy.call())
    await app.worker(dsn=ff_dsn).run_until_idle()
    assert await handle.state() is PublicState.SUSPENDED
    await ff_clock.advance(30)
    [waitpoint] = (await client.engine.list_open_waitpoints()).waitpoints
    await client.engine.deliver_approval_signal(
        handle.execution_id,
        waitpoint.waitpoint_id,
        "approved",
        lane_id="default",
        idempotency_suffix="1",
    )

    await ff_clock.advance(60)
    await ff_sweep()
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await handle.result(timeout=3) == "approved"
