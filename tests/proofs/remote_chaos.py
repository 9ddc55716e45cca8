"""G1, G2: servers are killed and started again under workers and a client that live on HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final

import asyncpg
import msgspec

from flowfabric import App, Client, Ctx, Fail, Retry
from flowfabric.errors import TransportError
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.worker.facts import eventually

TTL: Final = 3.0
WORKERS: Final = 2
IN_FLIGHT: Final = 32
RESULTS_WITHIN: Final = 600.0

_ENDED: Final = """
SELECT count(*) AS created, count(*) FILTER (WHERE public_state = 'completed') AS completed,
       count(*) FILTER (WHERE total_attempt_count > 1) AS again
  FROM ff.execution
"""
_TWICE: Final = """
SELECT count(*) FROM (SELECT FROM ff.completion_event GROUP BY execution_id HAVING count(*) <> 1)
    AS twice
"""


class Size(msgspec.Struct, frozen=True):
    """How many executions there are, and how often the server is killed meanwhile."""

    executions: int
    kills: int


class ServerProcess:
    """`ff server` at one port, killed and started again."""

    def __init__(self, dsn: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._dsn = dsn
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[Any] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """The server answers."""
        command = ("-m", "flowfabric.cli", "server", "--listen", f"127.0.0.1:{self._port}")
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            env={**os.environ, "FF_DATABASE_URL": self._dsn},
            stderr=asyncio.subprocess.PIPE,
        )
        assert self._process.stderr is not None
        while line := await asyncio.wait_for(self._process.stderr.readline(), 60):
            if re.search(rb"serving at \S+", line):
                self._reading = asyncio.create_task(self._process.stderr.read())
                return
        raise RuntimeError("the server did not start")

    async def kill(self, how: signal.Signals) -> None:
        """The server has ended, by this signal."""
        assert self._process is not None
        assert self._reading is not None
        self._process.send_signal(how)
        await self._process.wait()
        await self._reading


@contextlib.asynccontextmanager
async def _server(dsn: str) -> AsyncGenerator[ServerProcess]:
    server = ServerProcess(dsn)
    await server.start()
    try:
        yield server
    finally:
        await server.kill(signal.SIGTERM)


def application() -> App:
    """Tasks of which some fail once, some have steps, and some wait for a child."""
    app = App()

    # On a slow machine a server is away for longer than a lease, again and again: none may give up.
    @app.task("leaf", retry=Retry(max_retries=3, initial=0), max_reclaims=100)
    async def leaf(ctx: Ctx, number: int) -> int:
        return number

    @app.task("job", retry=Retry(max_retries=5, initial=0), max_reclaims=100)
    async def job(ctx: Ctx, number: int) -> int:
        if number % 7 == 0 and ctx.attempt_index == 0:
            raise Fail("once")
        if number % 5 == 0:
            return await ctx.step("add", lambda: number + 1) - 1
        if number % 11 == 0:
            [found] = await ctx.gather([leaf.call(number)])
            return found
        await asyncio.sleep(0.002)
        return number

    return app


async def _submit(client: Client, app: App, numbers: Sequence[int]) -> list[Any]:
    """Every call is submitted once, however often the server goes away: by its key."""
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def one(number: int) -> Any:
        async with slots:
            while True:
                with contextlib.suppress(TransportError):
                    return await client.submit(
                        app.tasks["job"].call(number), idempotency_key=f"n{number}"
                    )

    return await asyncio.gather(*map(one, numbers))


async def _strike(server: ServerProcess, size: Size, chance: random.Random) -> None:
    for number in range(size.kills):
        await asyncio.sleep(chance.uniform(0.3, 1.0))
        await server.kill(signal.SIGTERM if number % 4 == 3 else signal.SIGKILL)
        await asyncio.sleep(chance.uniform(0.0, 0.3))
        await server.start()


async def _run(dsn: str, size: Size, chance: random.Random) -> list[Figure]:
    app = application()
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(_server(dsn))
        client = await stack.enter_async_context(await Client.connect(server.url))
        for number in range(WORKERS):
            worker = app.worker(url=server.url, lease_ttl=TTL, worker_instance_id=f"w{number}")
            await stack.enter_async_context(worker)
        striking = asyncio.create_task(_strike(server, size, chance))
        handles = await _submit(client, app, range(size.executions))
        async with asyncio.timeout(RESULTS_WITHIN):
            results = await asyncio.gather(*(each.result() for each in handles))
        await striking
        db = await asyncpg.connect(dsn)
        stack.push_async_callback(db.close)

        async def nothing_goes_on() -> bool:
            return not await db.fetchval(
                "SELECT count(*) FROM ff.execution WHERE lifecycle_phase <> 'terminal'"
            )

        await eventually(nothing_goes_on, within=60)
        ended, twice = await db.fetchrow(_ENDED), await db.fetchval(_TWICE)
    assert ended is not None
    right = sum(found == number for number, found in enumerate(results))
    return [
        Figure(
            "G1, G19",
            f"results of executions over HTTP while the server was ended {size.kills} times; "
            "executions of all kinds that completed",
            f"{right:,} of {size.executions:,}; {ended['completed']:,} of {ended['created']:,}; "
            f"{ended['again']:,} had more than one attempt",
            "all; all",
            held=right == size.executions and ended["completed"] == ended["created"],
        ),
        Figure("G2", "executions without exactly one end", f"{twice}", "0", held=twice == 0),
    ]


def _at(size: Size) -> Callable[[Arena], Sequence[Figure]]:
    def run(arena: Arena) -> Sequence[Figure]:
        with arena.database() as dsn:
            return asyncio.run(_run(dsn, size, arena.chance("remote chaos")))

    return run


REMOTE_CHAOS: Final = Proof(
    "remote_chaos",
    quick=_at(Size(executions=300, kills=2)),
    full=_at(Size(executions=5000, kills=12)),
    claims=("G1", "G2", "G19"),
)
