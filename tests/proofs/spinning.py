"""Tasks that keep a process busy; imported by this name, also where they run."""

from __future__ import annotations

import os
import time

from flowfabric import App, Ctx

app = App()


@app.task("block")
async def block(ctx: Ctx, seconds: float) -> int:
    """Holds up the event loop, as a forgotten blocking call does."""
    time.sleep(seconds)  # noqa: ASYNC251  that is the point
    return os.getpid()


@app.task("spin", executor="process")
def spin(ctx: Ctx, seconds: float) -> int:
    """Takes all that a core has to give."""
    until, turns = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        turns += 1
    return os.getpid()
