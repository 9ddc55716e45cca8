"""A process that follows executions to their ends: `python -m … DSN ID …`.

It says a line once it has a frame of each, and at last how many frames of all it has read in order.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from flowfabric.config import DatabaseConfig
from flowfabric.engine.engine import Engine
from flowfabric.engine.streams.frame import Frame
from flowfabric.ids import ExecutionId


async def follow_all(dsn: str, executions: Sequence[ExecutionId]) -> int:
    """How many frames there were, each after the one before it; the others do not count."""
    engine = await Engine.connect(DatabaseConfig(dsn=dsn, pool_size=2), role="following")
    begun = [asyncio.Event() for _ in executions]

    async def follow(execution_id: ExecutionId, has_begun: asyncio.Event) -> int:
        before: Frame | None = None
        counted = 0
        async for frame in await engine.follow_stream(execution_id):
            has_begun.set()
            counted += before is None or before.id < frame.id
            before = frame
        return counted

    try:
        reading = asyncio.gather(*map(follow, executions, begun))
        for each in begun:
            await each.wait()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        return sum(await reading)
    finally:
        await engine.close()


if __name__ == "__main__":
    ids = [ExecutionId.parse(each) for each in sys.argv[2:]]
    sys.stdout.write(f"{asyncio.run(follow_all(sys.argv[1], ids))}\n")
