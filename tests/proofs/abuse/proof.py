"""S12: limits of each token hold, and an honest caller goes on nearly as before beside abusers."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
import asyncpg
import msgspec

from flowfabric import Engine
from flowfabric.config import DatabaseConfig
from flowfabric.server.limits import RequestLimits
from flowfabric.states import Role
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.fuzz import server
from tests.proofs.proof import Proof, Run

ABUSIVE_TOKENS: Final = 5
SEEDED: Final = 2000
TIMES: Final = 3.0
READ_SECONDS: Final = 5.0


class Size(msgspec.Struct, frozen=True):
    """How many abusive clients there are, how often they come, and the calls of the honest one."""

    clients: int
    rounds: int
    calls: int


class Honest:
    """A caller that submits, reads and lists, one call after the other."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session, self._url = session, url
        self._headers = {"authorization": f"Bearer {token}"}
        self.failed: list[int] = []

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        """The status, and the body of a success."""
        async with self._session.request(
            method, self._url + path, headers=self._headers, json=body, **more
        ) as answer:
            return answer.status, await answer.json() if answer.ok else None

    async def p99(self, calls: int) -> float:
        """The 99th percentile of the seconds of so many calls."""
        seconds: list[float] = []
        path = "/v1/executions?limit=50"
        for number in range(calls):
            began = time.perf_counter()
            if number % 3 == 0:
                body = {"execution_kind": "honest", "input": number}
                status, made = await self.call("POST", "/v1/executions", body)
            elif number % 3 == 1:
                status, _ = await self.call("GET", path)
            else:
                status, _ = await self.call("GET", "/v1/executions?limit=50")
            seconds.append(time.perf_counter() - began)
            if number % 3 == 0 and made is not None:
                path = f"/v1/executions/{made['execution_id']}"
            if status >= 400:
                self.failed.append(status)
        return statistics.quantiles(seconds, n=100)[98]


@contextlib.asynccontextmanager
async def _abused(
    url: str, clients: int, tokens: Sequence[str], told: Counter[str]
) -> AsyncGenerator[None]:
    command = ("-m", "tests.proofs.abuse.abusers", url, str(clients), *tokens)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"ready\n"
    try:
        yield
    finally:
        said, _ = await asyncio.wait_for(process.communicate(b""), 60)
        told.update(msgspec.json.decode(said, type=dict[str, int]))


async def _beside_abusers(
    url: str, size: Size, honest: Honest, tokens: Sequence[str], arena: Arena
) -> Figure:
    await honest.p99(100)  # warm
    alone: list[float] = []
    beside: list[float] = []
    told = Counter[str]()
    for _ in range(size.rounds):
        alone.append(await honest.p99(size.calls))
        async with _abused(url, size.clients, tokens, told):
            beside.append(await honest.p99(size.calls))
        said = f"p99 alone {alone[-1] * 1000:.1f} ms, beside {beside[-1] * 1000:.1f} ms"
        arena.say(f"{said}; abusers were answered {dict(told)}")
    times = statistics.median(beside) / statistics.median(alone)
    return Figure(
        "S12",
        f"p99 of an honest caller beside {size.clients} abusive clients with {len(tokens)} tokens, "
        f"against alone; its calls that failed (of {len(alone) * size.calls * 2:,})",
        f"{statistics.median(beside) * 1000:.1f} ms: {times:.2f}x; {len(honest.failed)}",
        f"<= {TIMES:g}x; 0",
        held=times <= TIMES and not honest.failed,
    )


async def _limits(url: str, dsn: str, caller: Honest) -> list[Figure]:
    limits = RequestLimits()
    page, _ = await caller.call("GET", "/v1/executions?limit=1001")
    async with contextlib.AsyncExitStack() as stack:
        streams: list[int] = []
        for _ in range(limits.streams + 4):
            opening = caller._session.get(url + "/v1/events/live", headers=caller._headers)
            streams.append((await stack.enter_async_context(opening)).status)
    locked = await asyncpg.connect(dsn)
    try:
        async with locked.transaction():
            await locked.execute("LOCK TABLE ff.exec_core IN ACCESS EXCLUSIVE MODE")
            began = time.perf_counter()
            reads = [caller.call("GET", "/v1/executions?limit=5") for _ in range(80)]
            statuses = [status for status, _ in await asyncio.gather(*reads)]
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
            "a page of 1,001; streams of one token that open, of 36",
            f"{page}; {streams.count(200)}",
            "422; 32",
            held=page == 422 and streams.count(200) == limits.streams,
        ),
        Figure(
            "S12",
            "80 reads at once of one token that the database holds up: seconds until all are"
            " answered, answers by status, statements left",
            f"{seconds:.1f} s; {told}; {left}",
            f"<= {READ_SECONDS + 2:g} s; 64 of 504, 16 of 429; 0",
            held=seconds <= READ_SECONDS + 2 and told == {429: 16, 504: 64} and not left,
        ),
    ]


async def _run(url: str, dsn: str, size: Size | None, arena: Arena) -> list[Figure]:
    async with contextlib.AsyncExitStack() as stack:
        engine = await Engine.connect(DatabaseConfig(dsn=dsn, pool_size=2))
        stack.push_async_callback(engine.close)
        made = [
            (await engine.create_token(f"t{number}", role=Role.ADMIN)).token
            for number in range(ABUSIVE_TOKENS + 1)
        ]
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        )
        honest = Honest(session, url, made[0])
        for _ in range(SEEDED // 500):
            many = [{"execution_kind": "job"} for _ in range(500)]
            status, _ = await honest.call("POST", "/v1/executions/batch", {"executions": many})
            assert status == 200
        figures = await _limits(url, dsn, honest)
        if size is not None:
            figures.append(await _beside_abusers(url, size, honest, made[1:], arena))
        return figures


def _at(size: Size | None) -> Run:
    def run(arena: Arena) -> Sequence[Figure]:
        with tempfile.TemporaryDirectory() as directory, arena.database() as dsn:
            log = Path(directory, "server.log")
            with server(dsn, log, FF_LIMITS="") as url:
                return asyncio.run(_run(url, dsn, size, arena))

    return run


ABUSE: Final = Proof(
    "abuse",
    quick=_at(Size(clients=100, rounds=3, calls=150)),
    full=_at(Size(clients=500, rounds=5, calls=1500)),
    sample=_at(None),  # ratios of times need a machine of their own
    claims=("S12",),
    timed=True,
)
