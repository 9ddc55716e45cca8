"""One run: everything is started, struck in turn, watched to its end, and put away."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import asyncpg

from flowfabric import Client
from flowfabric.db.migrate import migrate
from tests.proofs.arena import Arena
from tests.proofs.chaos.crew import Crew
from tests.proofs.chaos.load import Acked, Piece, pieces, submit, weight
from tests.proofs.chaos.proxy import Proxy
from tests.proofs.chaos.schedule import CLIENT, WORKERS, Fault, Size, faults
from tests.proofs.chaos.server import Server
from tests.worker.facts import eventually

BACKLOG: Final = 150
"""How far the submitter may be ahead of the workers."""
PATIENCE: Final = 45.0
"""How long nothing may move before a run is given up."""

_SIDE: Final = "CREATE TABLE side (execution_id uuid NOT NULL, lease_epoch bigint NOT NULL)"
_ENDED: Final = """
SELECT (SELECT count(*) FROM ff.completion_event),
       (SELECT count(*) FROM ff.execution WHERE lifecycle_phase <> 'terminal')
"""
_SERVING: Final = "SELECT count(*) FROM ff.worker_registry WHERE worker_instance_id = ANY($1)"


class Stuck(Exception):
    """Nothing has moved for too long; what was reached is judged."""


class Stage:
    """What a run consists of, and what is known of it."""

    def __init__(self, server: Server, size: Size, say: Callable[[str], None]) -> None:
        self.server, self.size, self._say = server, size, say
        self.crews: list[Crew] = []
        self.proxies: list[Proxy] = []
        self.starts = Path()
        self.acked = Acked()
        self.struck: list[Fault] = []
        self.exit_codes: list[int] = []
        self._planned, self._submitted = 0, 0
        self._ended, self._open, self._moved_at = 0, 0, time.monotonic()
        self._freezing: list[asyncio.Task[None]] = []
        self._watching: asyncpg.Connection[Any] | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def set_up(
        cls, server: Server, size: Size, say: Callable[[str], None]
    ) -> AsyncGenerator[Stage]:
        """Postgres, a line for each party, and workers; nothing of it is left after the block."""
        stage = cls(server, size, say)
        await server.start()
        await migrate(server.dsn)
        await (await stage._direct()).execute(_SIDE)
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(stage._stop_watching)
            logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-logs-")))
            stage.starts = logs / "starts"
            for _ in range(WORKERS + 1):
                stage.proxies.append(await stack.enter_async_context(Proxy.to(server.dsn)))
            for place in range(WORKERS):
                crew = Crew(place, stage.proxies[place].dsn, logs, size.ttl)
                stack.push_async_callback(crew.close)
                await crew.start()
                stage.crews.append(crew)
            yield stage
            for freezing in stage._freezing:
                freezing.cancel()

    async def play(self, arena: Arena) -> None:
        """Submit, strike, and wait until everything has ended or nothing moves any more."""
        plan = faults(arena.chance("chaos faults"), self.size)
        work = pieces(arena.chance("chaos work"), self.size)
        self._planned = len(plan)
        await self._until(self._all_serve)
        submitting = asyncio.create_task(self._submit_all(work))
        try:
            for fault in plan:
                await self._until(lambda fault=fault: self._share >= fault.at)
                await self._strike(fault)
            await self._until(lambda: all(each.done() for each in (submitting, *self._freezing)))
            submitting.result()
            await self._until(lambda: self._share >= 1 and not self._open)
            await self._until(self._all_serve)
        except Stuck:
            self._say(f"stuck at {self._ended} of {self.size.executions}")
        finally:
            submitting.cancel()
        self.exit_codes = [await crew.stop() for crew in self.crews]

    @property
    def _share(self) -> float:
        return self._ended / self.size.executions

    async def _submit_all(self, work: Sequence[Piece]) -> None:
        """A little ahead of the workers, and never so far that a blow would find nothing left."""
        async with await Client.connect(self.proxies[CLIENT].dsn, pool_size=2) as client:
            for piece in work:
                await eventually(lambda: self._submitted < self._allowed, within=10 * PATIENCE)
                await submit(client, piece, self.acked)
                self._submitted += weight(piece)

    @property
    def _allowed(self) -> float:
        acts = self._planned + 1
        due = (len(self.struck) + 1) / acts * self.size.executions
        return min(self._ended + BACKLOG, due)

    async def _strike(self, fault: Fault) -> None:
        """One blow. Somebody is always left at work: who is down is waited for first."""
        who = f"party {fault.party} " if fault.party >= 0 else ""
        what = f"{fault.trap.when} {fault.trap.statement}" if fault.trap else ""
        self._say(f"  {self._ended:>6} ended: {fault.kind} {who}{what}")
        match fault.kind:
            case "kill":
                await self._until(self._all_serve)
                await self.crews[fault.party].kill()
            case "freeze":
                await self._until(self._all_serve)
                freeze = self.crews[fault.party].freeze(fault.seconds)
                self._freezing.append(asyncio.create_task(freeze))
            case "postgres":
                await self.server.crash(fault.seconds)
            case "cut":
                self.proxies[fault.party].cut()
            case "trap":
                assert fault.trap is not None
                self.proxies[fault.party].set_trap(fault.trap)
        self.struck.append(fault)

    async def _all_serve(self) -> bool:
        if any(crew.frozen for crew in self.crews):
            return False
        names = [crew.instance for crew in self.crews]
        try:
            return await (await self._direct()).fetchval(_SERVING, names) == len(names)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False

    async def _until(self, reached: Callable[[], Any]) -> None:
        """Look again and again; raises `Stuck` once nothing has moved for a long time."""
        self._moved_at = time.monotonic()
        while True:
            await self._look()
            answer = reached()
            if await answer if asyncio.iscoroutine(answer) else answer:
                return
            if time.monotonic() - self._moved_at > PATIENCE:
                raise Stuck
            await asyncio.sleep(0.03)

    async def _look(self) -> None:
        try:
            [(ended, self._open)] = await (await self._direct()).fetch(_ENDED)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return
        if ended != self._ended:
            self._ended, self._moved_at = ended, time.monotonic()

    def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.terminate()

    async def _direct(self) -> asyncpg.Connection[Any]:
        """A connection past every proxy."""
        if self._watching is None or self._watching.is_closed():
            self._watching = await asyncpg.connect(self.server.dsn, timeout=5)
        return self._watching
