"""A process of its own that does controls at once: `python -m … DSN CONNECTIONS`.

It says `ready`; after each line `CONTROL ID...` it says how many of these were refused by what.
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


async def controlled(dsn: str, connections: int) -> None:
    engine = await Engine.connect(DatabaseConfig(dsn=dsn, pool_size=connections), role="tests")
    try:
        await asyncio.gather(*(engine.has_tokens() for _ in range(connections)))
        _say("ready")
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, *executions = line.split()
            answers = await asyncio.gather(
                *(CONTROLS[name](engine, ExecutionId.parse(each)) for each in executions),
                return_exceptions=True,
            )
            _say(_refusals(answers))
    finally:
        await engine.close()


def _refusals(answers: list[Any]) -> str:
    refused = Counter(type(answer).__name__ for answer in answers if isinstance(answer, Exception))
    return " ".join(f"{kind}:{number}" for kind, number in sorted(refused.items())) or "none"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(controlled(sys.argv[1], int(sys.argv[2])))
