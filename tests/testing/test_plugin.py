"""What the pytest plugin changes for the handlers of a test."""

import pytest

from flowfabric import App, Client, Ctx, ExecutionFailed
from flowfabric.testing import Clock

pytestmark = pytest.mark.timeout(60)


async def test_a_handler_that_diverges_fails_in_a_test(ff_dsn: str, ff_clock: Clock) -> None:
    app, runs = App(), list[int]()

    @app.task("job")
    async def job(ctx: Ctx) -> None:
        runs.append(1)
        await ctx.step(f"run {len(runs)}", lambda: None)
        await ctx.sleep(60)

    async with await Client.connect(ff_dsn) as client:
        handle = await client.submit(job.call())
        await app.worker(dsn=ff_dsn).run_until_idle()
        await ff_clock.advance(60)
        await app.worker(dsn=ff_dsn).run_until_idle()

        with pytest.raises(ExecutionFailed, match="made other calls than before"):
            await handle.result(5)
