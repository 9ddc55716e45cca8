"""Operators who replay an execution, and whose processes die at one place each in that.

`python -m tests.stories.replaying DSN EXECUTION_ID` has everything loaded, forks an operator for
each place that it reads, and says how that process ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable

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


async def replay(dsn: str, execution_id: ExecutionId, place: str) -> None:
    """Begin anew from the start, as far as the process comes."""
    engine = await Engine.connect(DatabaseConfig(dsn=dsn))
    PLACES[place]()
    await engine.replay_execution(execution_id, from_="start", actor="ann")
    die()


def fork(dsn: str, execution_id: ExecutionId, place: str) -> int:
    """How the process of an operator ended that was to die there."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        asyncio.run(replay(dsn, execution_id, place))
    finally:
        os._exit(1)


@contextlib.asynccontextmanager
async def operators(
    dsn: str, execution_id: ExecutionId
) -> AsyncGenerator[Callable[[str], Awaitable[int]]]:
    """Within the block: an operator dies at a place that is named; how its process ended."""
    pipe = asyncio.subprocess.PIPE
    forker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.stories.replaying", dsn, str(execution_id)),
        stdin=pipe,
        stdout=pipe,
    )
    assert forker.stdin is not None
    assert forker.stdout is not None
    stdin, stdout = forker.stdin, forker.stdout

    async def dies(place: str) -> int:
        stdin.write(f"{place}\n".encode())
        return int(await stdout.readline())

    try:
        yield dies
    finally:
        stdin.close()
        await forker.wait()


def main() -> None:
    dsn, execution_id = sys.argv[1], ExecutionId.parse(sys.argv[2])
    for line in sys.stdin:
        sys.stdout.write(f"{fork(dsn, execution_id, line.strip())}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
