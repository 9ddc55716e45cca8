"""`python -m bench rest`: what HTTP costs, beside the same calls on the database, in one run."""

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import aiohttp
import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.postgres import Cluster
from bench.rest_processes import Compared, compare
from bench.rest_server import HEADERS, TOKEN, Server, serving, serving_bare
from flowfabric import App, Client, Ctx
from flowfabric.db.migrate import migrate
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.complete import Completion

IN_FLIGHT: Final = 32
PAYLOAD: Final = {"text": "x" * 80}
UNNOTICED_MS: Final = 15.0
OF_BARE: Final = 3.2
"""How much CPU a request may take, against a server whose application does nothing.

The bar was set as 90 µs where such a server took 28 µs. Microseconds differ by a factor of four
between machines; the ratio, of one run, does not.
"""
_IDLE: Final = 1.0
"""Seconds for which an idle server is looked at: sweeps are no part of a request."""
CLAIMANT: Final = Claimant(worker_id="bench", worker_instance_id="bench-1", lanes=("default",))

app = App()


@app.task("bench.noop")
async def noop(ctx: Ctx, text: str) -> None:
    """Do nothing."""


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One bar of the decisions about REST."""

    what: str
    value: float
    bound: float
    unit: str = "x"
    at_most: bool = False
    told: str = ""

    @property
    def held(self) -> bool:
        return self.value <= self.bound if self.at_most else self.value >= self.bound


class Framework(msgspec.Struct, frozen=True, kw_only=True):
    """Microseconds of CPU of a request: of the server, and of one whose application is nothing."""

    ours: float
    bare: float


class Sizes(msgspec.Struct, frozen=True):
    """How much is measured."""

    submits: int
    drained: int
    rounds: int
    idle: int


FULL: Final = Sizes(submits=6000, drained=6000, rounds=3, idle=200)
QUICK: Final = Sizes(submits=1500, drained=1500, rounds=1, idle=60)


async def per_second(count: int, in_flight: int, call: Callable[[], Awaitable[Any]]) -> float:
    """How many calls are answered a second."""
    left = iter(range(count))

    async def caller() -> None:
        for _ in left:
            await call()

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(in_flight)))
    return count / (time.perf_counter() - began)


class Measured:
    """The clients of one run, and the ratios of its rounds."""

    def __init__(
        self, sizes: Sizes, server: Server, direct: Client, remote: Client, http: Any, dsn: str
    ) -> None:
        self.sizes, self.server, self.dsn = sizes, server, dsn
        self.direct, self.remote, self.http = direct, remote, http

    async def post(self) -> None:
        body = {"execution_kind": "bench.noop", "input": PAYLOAD}
        async with self.http.post(f"{self.server.url}/v1/executions", json=body) as answer:
            assert answer.status == 201, await answer.text()

    async def submits(self) -> dict[str, float]:
        """Submits one by one, by HTTP alone and by the client, against those on the database."""
        count = self.sizes.submits
        call = noop.call(**PAYLOAD)
        direct = await per_second(count, IN_FLIGHT, lambda: self.direct.submit(call))
        posted = await per_second(count, IN_FLIGHT, self.post)
        remote = await per_second(count, IN_FLIGHT, lambda: self.remote.submit(call))
        calls = [call] * 100
        many = await per_second(count // 50, 4, lambda: self.direct.submit_many(calls))
        batches = await per_second(count // 50, 4, lambda: self.remote.submit_many(calls))
        return {"post": posted / direct, "submit": remote / direct, "batch": batches / many}

    async def claims(self) -> float:
        """Claim and complete in batches of 100, two in flight."""

        async def turn(client: Client) -> None:
            claimed = await client.engine.claim(CLAIMANT, ttl=60.0, limit=100)
            await client.engine.complete([Completion(each.lease, b"null") for each in claimed])

        count = max(4, self.sizes.submits // 200)
        direct = await per_second(count, 2, lambda: turn(self.direct))
        remote = await per_second(count, 2, lambda: turn(self.remote))
        return remote / direct

    async def drain(self, where: dict[str, str]) -> float:
        """Completions a second of one worker that finds a full queue."""
        await self._empty()
        calls = [noop.call(**PAYLOAD)] * 500
        for _ in range(self.sizes.drained // 500):
            await self.direct.submit_many(calls)
        began = time.perf_counter()
        await app.worker(**where, concurrency=100).run_until_idle()  # pyright: ignore
        return self.sizes.drained / (time.perf_counter() - began)

    async def _empty(self) -> None:
        """Nothing is left of what was measured before."""
        while claimed := await self.direct.engine.claim(CLAIMANT, ttl=60.0, limit=1000):
            await self.direct.engine.complete([Completion(each.lease) for each in claimed])

    async def idle(self, where: dict[str, str], client: Client) -> float:
        """The p99 from a submit to the start of its handler, in ms, of an idle system."""
        started: asyncio.Queue[float] = asyncio.Queue()
        waiting = App()

        @waiting.task("bench.timed")
        async def timed(ctx: Ctx) -> None:
            started.put_nowait(time.perf_counter())

        delays: list[float] = []
        async with waiting.worker(**where):  # pyright: ignore
            for number in range(self.sizes.idle + 10):
                began = time.perf_counter()
                await client.submit(timed.call())
                took = (await started.get() - began) * 1000
                if number >= 10:
                    delays.append(took)
                await asyncio.sleep(0.02)
        return sorted(delays)[int(len(delays) * 0.99)]

    async def framework(self) -> Framework:
        """Microseconds of CPU of a request that does nothing, and of a bare server's."""
        ours: list[float] = []
        bare: list[float] = []
        async with serving_bare() as nothing:
            for _ in range(max(3, self.sizes.rounds)):
                ours.append(await self._per_request(self.server))
                bare.append(await self._per_request(nothing))
        return Framework(ours=median(ours), bare=median(bare))

    async def _per_request(self, server: Server) -> float:
        """Microseconds of CPU that the server needs for a request, beside what it needs idle."""

        async def ask() -> None:
            async with self.http.get(f"{server.url}/v1/whoami") as answer:
                assert answer.status == 200
                await answer.read()

        await per_second(200, 8, ask)
        idle = sum(server.cpu())
        await asyncio.sleep(_IDLE)
        before = sum(server.cpu())
        began, idle = time.perf_counter(), (before - idle) / _IDLE
        count = self.sizes.submits // 2
        await per_second(count, 8, ask)
        own = sum(server.cpu()) - before - idle * (time.perf_counter() - began)
        return own / count * 1e6

    async def crowded(self) -> float:
        """The p99 of submits beside 1,000 waits and 200 streams, against that without."""

        async def p99() -> float:
            delays: list[float] = []
            for _ in range(self.sizes.idle * 2):
                began = time.perf_counter()
                await self.post()
                delays.append(time.perf_counter() - began)
            return sorted(delays)[int(len(delays) * 0.99)]

        alone = await p99()
        made = await self.direct.submit(noop.call(**PAYLOAD), lane="elsewhere")
        wait = {"execution_ids": [str(made.execution_id)], "wait": 30}
        async with contextlib.AsyncExitStack() as stack:
            connector = aiohttp.TCPConnector(limit=0)
            crowd = aiohttp.ClientSession(connector=connector, headers=HEADERS)
            await stack.enter_async_context(crowd)
            waits = [
                asyncio.ensure_future(crowd.post(f"{self.server.url}/v1/outcomes", json=wait))
                for _ in range(1000)
            ]
            for _ in range(200):
                await stack.enter_async_context(crowd.get(f"{self.server.url}/v1/events/live"))
            await asyncio.sleep(1)
            beside = await p99()
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        return beside / alone

    async def two_processes(self) -> Compared:
        """Two of three reads are answered without the database, so that it is not the limit."""
        made = await self.direct.submit(noop.call(**PAYLOAD), lane="elsewhere")
        paths = ("/v1/whoami", f"/v1/executions/{made.execution_id}/state", "/v1/info")
        rounds, requests = max(3, self.sizes.rounds), self.sizes.submits * 4
        return await compare(self.dsn, paths, requests=requests, rounds=rounds)


async def rest(cluster: Cluster, console: Console, *, quick: bool, out: Path | None) -> int:
    """Measure, print every bar beside what was reached; 1 unless all are held."""
    sizes = QUICK if quick else FULL
    dsn = await cluster.create("rest")
    await migrate(dsn)
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(dsn))
        direct = await stack.enter_async_context(await Client.connect(dsn))
        remote = await stack.enter_async_context(await Client.connect(server.url, token=TOKEN))
        http = await stack.enter_async_context(aiohttp.ClientSession(headers=HEADERS))
        measured = Measured(sizes, server, direct, remote, http, dsn)
        bars = await _bars(measured)
    table = Table(title="REST beside the database", box=SIMPLE_HEAD, title_justify="left")
    for column in ("what", "reached", "bar", "held"):
        table.add_column(column)
    for bar in bars:
        sign = "≤" if bar.at_most else "≥"
        word = "[green]yes[/green]" if bar.held else "[red]no[/red]"
        reached = f"{bar.value:.2f}{bar.unit}" + (f" ({bar.told})" if bar.told else "")
        table.add_row(bar.what, reached, f"{sign} {bar.bound:g}{bar.unit}", word)
    console.print(table)
    if out:
        _write(out, bars)
    return 0 if all(bar.held for bar in bars) else 1


def _write(path: Path, bars: list[Bar]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(bars)) + b"\n")


async def _bars(measured: Measured) -> list[Bar]:
    over_http = {"url": measured.server.url, "token": TOKEN}
    on_database = {"dsn": measured.dsn}
    ratios: dict[str, list[float]] = {}
    for _ in range(measured.sizes.rounds):
        for name, value in (await measured.submits()).items():
            ratios.setdefault(name, []).append(value)
        ratios.setdefault("claim", []).append(await measured.claims())
        drained = await measured.drain(on_database)
        ratios.setdefault("drain", []).append(await measured.drain(over_http) / drained)
    found = {name: median(values) for name, values in ratios.items()}
    near = await measured.idle(on_database, measured.direct)
    far = await measured.idle(over_http, measured.remote)
    processes = await measured.two_processes()
    framework = await measured.framework()
    return [
        Bar(what="POST /v1/executions, 32 in flight", value=found["post"], bound=0.25),
        Bar(what="client.submit, 32 in flight", value=found["submit"], bound=0.6),
        Bar(what="submit_many of 100, 4 in flight", value=found["batch"], bound=0.8),
        Bar(what="claim and complete, batches of 100", value=found["claim"], bound=0.65),
        Bar(what="a worker drains its queue", value=found["drain"], bound=0.5),
        Bar(
            what="submit to handler start, idle, p99 more than direct",
            value=far - near,
            bound=UNNOTICED_MS,
            unit=" ms",
            at_most=True,
            told=f"{far:.1f} and {near:.1f}",
        ),
        Bar(
            what="mixed reads of two processes against one",
            value=processes.ratio,
            bound=1.6,
            told=f"{os.cpu_count()} cores; {processes.told}",
        ),
        Bar(
            what="CPU of a request that does nothing, against a bare server",
            value=framework.ours / framework.bare,
            bound=OF_BARE,
            at_most=True,
            told=f"{framework.ours:.0f} µs; a bare server {framework.bare:.0f} µs",
        ),
        Bar(
            what="p99 of submits beside 1,000 waits and 200 streams",
            value=await measured.crowded(),
            bound=1.5,
            at_most=True,
        ),
    ]
