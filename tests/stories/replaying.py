"""An operator who replays an execution, and whose process dies at one place in that.

`python -m tests.stories.replaying DSN EXECUTION_ID PLACE`
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from flowfabric.config import DatabaseConfig
from flowfabric.db.rows import Connection
from flowfabric.db.steps import current_step
from flowfabric.engine.engine import Engine
from flowfabric.ids import ExecutionId
from tests.stories.mortal import before_commit_of, die

REWIND = "journal.rewind_journal"


def at_rewind(wanted: int) -> None:
    """Die before this statement, counted from the first of those that rewind the journal."""
    sent: list[str] = []

    async def step(_conn: Connection, name: str) -> None:
        if sent or name == REWIND:
            sent.append(name)
        if len(sent) > wanted:
            die()

    current_step.set(step)


PLACES: dict[str, Callable[[], None]] = {
    "before the rewind": lambda: at_rewind(0),
    "after the rewind, before the rest": lambda: at_rewind(2),
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
    engine = await Engine.connect(DatabaseConfig(dsn=dsn))
    PLACES[place]()
    await engine.replay_execution(execution_id, from_="start", actor="ann")
    die()


if __name__ == "__main__":
    asyncio.run(replay(sys.argv[1], ExecutionId.parse(sys.argv[2]), sys.argv[3]))
