"""S12: what one token may have of a server is bounded: pages, streams, reads and their time.

And the reads of another token go on beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import aiohttp
import asyncpg

from flowfabric import Engine
from flowfabric.config import DatabaseConfig
from flowfabric.server.limits import RequestLimits
from flowfabric.states import Role
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.flood import PATH
from tests.proofs.fuzz import server
from tests.proofs.proof import Proof

AT_ONCE: Final = 80
"""Reads of one token; it may have 64."""
READ_SECONDS: Final = 5.0
ABUSIVE: Final = 500
"""Clients of one token that repeat without a pause."""
READS: Final = 100
MOST_MS: Final = 300.0
"""The p99 of another token's reads beside them; on two cores it is 40, and 900 without turns."""


class Caller:
    """A client with one token."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session, self._url = session, url
        self._headers = {"authorization": f"Bearer {token}"}

    async def status(self, path: str) -> int:
        async with self._session.get(self._url + path, headers=self._headers) as answer:
            return answer.status

    async def open_streams(self, count: int) -> list[int]:
        """The statuses of so many streams that are open beside one another."""
        async with contextlib.AsyncExitStack() as stack:
            statuses: list[int] = []
            for _ in range(count):
                opening = self._session.get(self._url + "/v1/events/live", headers=self._headers)
                statuses.append((await stack.enter_async_context(opening)).status)
            return statuses


async def _limits(dsn: str, caller: Caller) -> list[Figure]:
    limits = RequestLimits()
    page = await caller.status("/v1/executions?limit=1001")
    streams = await caller.open_streams(limits.streams + 4)
    locked = await asyncpg.connect(dsn)
    try:
        async with locked.transaction():
            await locked.execute("LOCK TABLE ff.exec_core IN ACCESS EXCLUSIVE MODE")
            began = time.perf_counter()
            reads = [caller.status("/v1/executions?limit=5") for _ in range(AT_ONCE)]
            statuses = await asyncio.gather(*reads)
            seconds = time.perf_counter() - began
            left = await locked.fetchval(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE wait_event_type = 'Lock' AND query LIKE '%search_executions%'"
            )
    finally:
        await locked.close()
    told = {each: statuses.count(each) for each in sorted(set(statuses))}
    return [
        Figure(
            "S12",
            f"a page of 1,001; streams of one token that open, of {len(streams)}",
            f"{page}; {streams.count(200)}",
            f"422; {limits.streams}",
            held=page == 422 and streams.count(200) == limits.streams,
        ),
        Figure(
            "S12",
            f"{AT_ONCE} reads at once of one token that the database holds up: seconds until all"
            " are answered, answers by status, statements left",
            f"{seconds:.1f} s; {told}; {left}",
            f"<= {READ_SECONDS + 2:g} s; 64 of 504, 16 of 429; 0",
            held=seconds <= READ_SECONDS + 2 and told == {429: 16, 504: 64} and not left,
        ),
    ]


async def _reads(caller: Caller) -> tuple[float, list[int]]:
    """Reads one after the other: the p99 in ms, and the statuses other than 200."""
    delays: list[float] = []
    statuses: list[int] = []
    for _ in range(READS):
        began = time.perf_counter()
        statuses.append(await caller.status(PATH))
        delays.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.02)
    return sorted(delays)[int(READS * 0.99) - 1], [each for each in statuses if each != 200]


async def _beside_a_flood(url: str, honest: Caller, abusive: str) -> Figure:
    """Reads of an honest token, alone and beside the clients of an abusive one."""
    await _reads(honest)  # warm
    alone, _ = await _reads(honest)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.proofs.flood", url, abusive, str(ABUSIVE)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        await asyncio.sleep(2)  # until its burst is used up
        beside, others = await _reads(honest)
        assert process.returncode is None
    finally:
        process.kill()
        await process.wait()
    return Figure(
        "S12",
        f"p99 of {READS} reads of one token, alone, and beside {ABUSIVE} clients of another that"
        " repeat without a pause; answers other than 200",
        f"{alone:.0f} ms, {beside:.0f} ms; {others or 0}",
        f"<= {MOST_MS:g} ms beside them; 0",
        held=beside <= MOST_MS and not others,
    )


async def _run(url: str, dsn: str) -> list[Figure]:
    async with contextlib.AsyncExitStack() as stack:
        engine = await Engine.connect(DatabaseConfig(dsn=dsn, pool_size=2))
        stack.push_async_callback(engine.close)
        made = await engine.create_token("caller", role=Role.ADMIN)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        )
        abusive = await engine.create_token("abusive", role=Role.READER)
        caller = Caller(session, url, made.token)
        return [
            *await _limits(dsn, caller),
            await _beside_a_flood(url, caller, abusive.token),
        ]


def run(arena: Arena) -> Sequence[Figure]:
    with (
        tempfile.TemporaryDirectory() as directory,
        arena.database() as dsn,
        server(dsn, Path(directory, "server.log"), FF_LIMITS="") as url,
    ):
        return asyncio.run(_run(url, dsn))


FAIR_USE: Final = Proof("fair_use", run, run, claims=("S12",), timed=True)
