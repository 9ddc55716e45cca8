"""A server that is stopped while people look, and one that is tried with wrong tokens."""

import asyncio
import re
import time
from typing import Final

import httpx

from bench.dashboard.result import Line, percentile
from bench.dashboard.served import Served, served
from bench.dashboard.viewers import VIEWERS, looking
from flowfabric import Engine
from flowfabric.states import Role

BYE: Final = b"data: {}\n"
TOKEN: Final = re.compile(r'name="_csrf" value="([^"]+)"')
SAME_SITE: Final = {"sec-fetch-site": "same-origin"}
ASKED: Final = 100


async def stop(dsn: str) -> list[Line]:
    """SIGTERM with 200 viewers: how long it takes, and who did not hear the goodbye."""
    async with served(dsn) as server, looking(server, VIEWERS, "t=overview&t=list") as viewers:
        seconds = await server.stop()
        await asyncio.gather(*(each.task for each in viewers), return_exceptions=True)
        deaf = sum(not each.heard or each.heard[-1][1] != BYE for each in viewers)
    group = f"stop with {VIEWERS} viewers"
    return [
        Line(group=group, what="SIGTERM to exit", value=seconds, unit="s", bar=2),
        Line(group=group, what="viewers without goodbye", value=deaf, unit="", bar=0),
    ]


async def login(dsn: str, engine: Engine, *, wrong: int) -> list[Line]:
    """Pages of a person who is logged in, while somebody else tries wrong tokens."""
    created = await engine.create_token("bench", role=Role.ADMIN)
    try:
        async with served(dsn) as server:
            lines = await _login(server, created.token, wrong)
    finally:
        await engine.revoke_token(created.token_id)
    return lines


async def _login(server: Served, token: str, wrong: int) -> list[Line]:
    async with (
        httpx.AsyncClient(timeout=30, headers=SAME_SITE) as person,
        httpx.AsyncClient(timeout=30, headers=SAME_SITE) as stranger,
    ):
        form = {"_csrf": await _token(person, server), "token": token, "next": "/lanes"}
        answer = await person.post(f"{server.base}/login", data=form)
        if answer.status_code != 303:
            raise RuntimeError(f"could not log in: {answer.status_code}")
        await _pages(person, server)
        before = percentile(await _pages(person, server), 95)
        given = await _token(stranger, server)

        async def tries() -> None:
            for number in range(wrong):
                form = {"_csrf": given, "token": f"wrong-{number}"}
                await stranger.post(f"{server.base}/login", data=form)

        flood = asyncio.create_task(tries())
        took: list[float] = []
        while not flood.done():
            took += await _pages(person, server)
        await flood
    return [
        Line(
            group="login",
            what=f"page p95 during {wrong:,} wrong tokens, of that before",
            value=percentile(took, 95) / before,
            unit="x",
            bar=2,
        )
    ]


async def _token(client: httpx.AsyncClient, server: Served) -> str:
    found = TOKEN.search((await client.get(f"{server.base}/login")).text)
    if found is None:
        raise RuntimeError("the login page has no form")
    return found[1]


async def _pages(client: httpx.AsyncClient, server: Served) -> list[float]:
    took: list[float] = []
    for _ in range(ASKED):
        began = time.perf_counter()
        answer = await client.get(f"{server.base}/executions")
        took.append(1000 * (time.perf_counter() - began))
        if answer.status_code != 200:
            raise RuntimeError(f"the page answers {answer.status_code}")
    return took
