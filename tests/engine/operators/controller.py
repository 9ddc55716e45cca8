"""A process of its own that does controls at once: `python -m … DSN CONTROL ID...`.

It says `ready`, waits for a line, and then says how many of its controls were refused by what.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from flowfabric.config import DatabaseConfig
from flowfabric.engine.engine import Engine
from flowfabric.ids import ExecutionId

CONTROLS: dict[str, Callable[[Engine, ExecutionId], Awaitable[Any]]] = {
    "cancel": lambda engine, each: engine.cancel_execution(each, reason="no"),
    "replay": lambda engine, each: engine.replay_execution(each),
    "revoke": lambda engine, each: engine.revoke_lease(each, reason="stuck"),
    "priority": lambda engine, each: engine.change_priority(each, 7),
    "block": lambda engine, each: engine.block_execution_for_admission(each, "paused_by_operator"),
    "unblock": lambda engine, each: engine.unblock_execution(each),
}


async def controlled(dsn: str, name: str, executions: list[ExecutionId]) -> str:
    engine = await Engine.connect(DatabaseConfig(dsn=dsn, pool_size=len(executions)), role="tests")
    try:
        await asyncio.gather(*(engine.read_execution_state(each) for each in executions))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        answers = await asyncio.gather(
            *(CONTROLS[name](engine, each) for each in executions), return_exceptions=True
        )
    finally:
        await engine.close()
    refused = Counter(type(answer).__name__ for answer in answers if isinstance(answer, Exception))
    return " ".join(f"{kind}:{number}" for kind, number in sorted(refused.items())) or "none"


if __name__ == "__main__":
    found = [ExecutionId.parse(each) for each in sys.argv[3:]]
    sys.stdout.write(asyncio.run(controlled(sys.argv[1], sys.argv[2], found)) + "\n")
