"""The application whose workers live and die in the stories: `python -m tests.stories.shop`."""

import asyncio
import os
import sys
import time
from datetime import UTC, datetime

import msgspec

from flowfabric import App, Ctx

app = App()


@app.task("nap")
async def nap(ctx: Ctx, seconds: float = 0.05) -> int:
    """Takes a while."""
    await asyncio.sleep(seconds)
    return os.getpid()


@app.task("block")
async def block(ctx: Ctx, seconds: float) -> int:
    """Holds up the event loop, as a forgotten blocking call does."""
    time.sleep(seconds)  # noqa: ASYNC251  that is the point
    return os.getpid()


@app.task("spin")
async def spin(ctx: Ctx, seconds: float) -> int:
    """Holds up the event loop and the interpreter."""
    until, turns = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        turns += 1
    return os.getpid()


@app.task("poison", max_reclaims=2)
async def poison(ctx: Ctx) -> None:
    """Kills the worker that touches it."""
    os._exit(9)


@app.task("clock")
async def clock(ctx: Ctx) -> tuple[float, float]:
    """What time it is here, by either way to ask."""
    return time.time(), datetime.now(UTC).timestamp()


@app.task("stuck")
def stuck(ctx: Ctx, seconds: float) -> int:
    """A thread that cannot be stopped."""
    time.sleep(seconds)
    return os.getpid()


def main() -> None:
    """Run a worker; its DSN and settings are the arguments."""
    dsn, settings = sys.argv[1], msgspec.json.decode(sys.argv[2])
    asyncio.run(app.worker(dsn=dsn, **settings).run())


if __name__ == "__main__":
    main()
