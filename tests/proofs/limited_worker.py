"""A worker process of the proof of limits: `python -m tests.proofs.limited_worker DSN`."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from flowfabric import App, Ctx, Rate

app: Final = App()
CAPS: Final = (1, 2, 10)
RATE: Final = Rate(20, per=0.5)
_LIMITS: Final = {cap: app.limit(f"cap-{cap}", concurrency=cap) for cap in CAPS}
_FAST: Final = app.limit("rate", rate=RATE)


@app.task("cap-1", limit=_LIMITS[1], limit_key=lambda key: key)
async def cap_1(ctx: Ctx, key: str) -> None:
    await asyncio.sleep(0.002)


@app.task("cap-2", limit=_LIMITS[2], limit_key=lambda key: key)
async def cap_2(ctx: Ctx, key: str) -> None:
    await asyncio.sleep(0.002)


@app.task("beside", lane="beside", limit=_LIMITS[2], limit_key=lambda key: key)
async def beside(ctx: Ctx, key: str) -> None:
    """Shares the limit and the keys of `cap_2`, in another lane."""
    await asyncio.sleep(0.002)


@app.task("cap-10", limit=_LIMITS[10], limit_key=lambda key: key)
async def cap_10(ctx: Ctx, key: str) -> None:
    await asyncio.sleep(0.002)


_IDLE: Final = App()


@_IDLE.task("idle", limit=_IDLE.limit("cap-2", concurrency=2), limit_key=lambda key: key)
async def idle(ctx: Ctx, key: str) -> None:
    """Shares them too, and no worker knows it."""


@app.task("rate", limit=_FAST)
async def rate(ctx: Ctx) -> None: ...


async def main(dsn: str) -> None:
    """Serve until the process is killed."""
    async with app.worker(dsn=dsn, lease_ttl=2, concurrency=32):
        print("ready", flush=True)  # noqa: T201 the parent process waits for it
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
