"""A worker whose handler locks a row, then waits: `python -m tests.worker.locking`."""

import asyncio
import json
import sys

from flowfabric import App, Ctx, Retry

app = App()


@app.task("lock", retry=Retry(max_retries=0))
async def lock(ctx: Ctx, number: int) -> str:
    tx = await ctx.transaction()
    locked = await tx.fetchval("SELECT number FROM ledger WHERE number = $1 FOR UPDATE", number)
    if locked is None:
        return "not there any more"
    await asyncio.sleep(60)
    return "kept"


if __name__ == "__main__":
    asyncio.run(app.worker(dsn=sys.argv[1], **json.loads(sys.argv[2])).run())
