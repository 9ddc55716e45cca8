"""An operator who replays an execution, and whose process dies at one place in that.

`python -m tests.stories.replaying DSN EXECUTION_ID PLACE`
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from flowfabric.config import DatabaseConfig
from flowfabric.engine.engine import Engine
from flowfabric.ids import ExecutionId
from tests.stories.mortal import before, before_commit_of, die

REWIND = "journal.rewind_journal"
PLACES: dict[str, Callable[[], None]] = {
    "before the journal is cut back": lambda: before(REWIND),
    "after that, before its new mark": lambda: before(f"{REWIND}: the mark of the journal"),
    "after that, before the execution is claimable": lambda: before("lifecycle.restart"),
    "before the commit": lambda: before_commit_of(REWIND),
    "after the commit": lambda: None,
}


async def dies(dsn: str, execution_id: ExecutionId, place: str) -> int:
    """How the process of an operator ended that was to die there."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.stories.replaying", dsn, str(execution_id), place
    )
    return await process.wait()


async def replay(dsn: str, execution_id: ExecutionId, place: str) -> None:
    """Begin anew from the start, as far as the process comes."""
    engine = await Engine.connect(DatabaseConfig(dsn=dsn))
    PLACES[place]()
    await engine.replay_execution(execution_id, from_="start", actor="ann")
    die()


if __name__ == "__main__":
    asyncio.run(replay(sys.argv[1], ExecutionId.parse(sys.argv[2]), sys.argv[3]))
