"""Worker processes that are killed while others work, and replaced at once."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple

from flowfabric.db.rows import Connection
from tests.stories.processes import WorkerProcess, workers
from tests.worker.facts import eventually

WORKERS = 3
SERVING = "SELECT count(*) FROM ff.worker_registry WHERE worker_instance_id = ANY($1)"

BUSIEST = """
SELECT worker_instance_id FROM ff.lease WHERE worker_instance_id = ANY($1)
 GROUP BY worker_instance_id ORDER BY count(*) DESC LIMIT 1
"""


class Line(NamedTuple):
    """What a handler did, to which step or signal, and when, in milliseconds since the epoch."""

    number: int
    at_ms: int


class Crew:
    """Some worker processes; a killed one has a successor with a name of its own."""

    def __init__(
        self, dsn: str, db: Connection, running: list[WorkerProcess], **settings: Any
    ) -> None:
        self._dsn, self._db, self._running, self._settings = dsn, db, running, settings
        self.kills = 0

    async def ready(self, number: int) -> None:
        """Wait until so many serve."""
        names = [each.instance for each in self._alive]

        async def enough_serve() -> bool:
            return await self._db.fetchval(SERVING, names) >= number

        await eventually(enough_serve, within=30)

    @property
    def _alive(self) -> list[WorkerProcess]:
        return [each for each in self._running if not each.ended]

    async def kill_one(self) -> None:
        """kill -9 of the one that holds most leases, when another one can go on."""
        await self.ready(2)
        names = [each.instance for each in self._alive]
        busiest = await eventually(lambda: self._db.fetchval(BUSIEST, names), within=20)
        doomed = next(each for each in self._alive if each.instance == busiest)
        doomed.kill()
        await doomed.exit_code()
        self.kills += 1
        name = f"w-{len(self._running)}"
        self._running.append(await WorkerProcess.start(self._dsn, name, **self._settings))


@contextlib.asynccontextmanager
async def crew(
    dsn: str, db: Connection, diary: Path, *, slots: int, ttl: float
) -> AsyncGenerator[Crew]:
    """Three worker processes of the shop."""
    settings = {
        "module": "tests.proofs.durable.shop",
        "quiet": True,
        "diary": str(diary),
        "concurrency": slots,
        "lease_ttl": ttl,
    }
    names = [f"w-{number}" for number in range(WORKERS)]
    async with workers(dsn, *names, **settings) as running:
        made = Crew(dsn, db, running, **settings)
        await made.ready(WORKERS)
        yield made


def read_diary(diary: Path) -> dict[str, dict[str, list[Line]]]:
    """The lines of each kind, by execution."""
    found: dict[str, dict[str, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for line in diary.read_text().splitlines():
        what, execution, number, at_ms = line.split()
        found[what][execution].append(Line(int(number), int(at_ms)))
    return found
