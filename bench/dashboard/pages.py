"""Every page: p95 to the last byte with four requests at a time, and CPU of the server."""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

import httpx

from bench.dashboard.result import Line, percentile
from bench.dashboard.served import Served
from flowfabric import Engine, PublicState
from flowfabric.engine.executions.search_executions import Search

AT_A_TIME: Final = 4
P95: Final = 100.0
CPU: Final = 12.0


async def paths(engine: Engine) -> dict[str, str]:
    """The pages by name."""
    [one] = (await engine.search_executions(Search(), limit=1)).executions
    [flow] = (await engine.list_flows(limit=1)).flows
    execution = f"/executions/{one.execution_id.partition_key}.{one.execution_id.uuid}"
    return {
        "overview": "/",
        "executions": "/executions",
        **{f"executions, {state}": f"/executions?state={state}" for state in _STATES},
        "executions of a lane": "/executions?lane=lane-3",
        "execution": execution,
        "flows": "/flows",
        "flow of two members": f"/flows/{flow.flow_id}",
        "lanes": "/lanes",
        "workers": "/workers",
        **{name: f"/{name}" for name in _OTHERS},
    }


_OTHERS: Final = ("approvals", "schedules", "budgets", "events", "keys", "settings")
_STATES: Final = (PublicState.WAITING.value, PublicState.ACTIVE.value, PublicState.COMPLETED.value)


async def pages(server: Served, named: Mapping[str, str], *, requests: int) -> list[Line]:
    """Two lines for each page that there is."""
    lines: list[Line] = []
    limits = httpx.Limits(max_connections=AT_A_TIME, max_keepalive_connections=AT_A_TIME)
    async with httpx.AsyncClient(limits=limits, timeout=30) as client:
        for name, path in named.items():
            url = f"{server.base}{path}"
            if (await client.get(url)).status_code != 200:
                continue
            before = server.cpu()
            took = await _ask(client, url, requests)
            cpu = 1000 * (server.cpu() - before) / requests
            lines += [
                Line(group="pages", what=name, value=percentile(took, 95), unit="ms", bar=P95),
                Line(group="CPU of pages", what=name, value=cpu, unit="ms", bar=CPU),
            ]
    return sorted(lines, key=lambda line: line.group != "pages")


async def _ask(client: httpx.AsyncClient, url: str, requests: int) -> list[float]:
    took: list[float] = []
    left = iter(range(requests))

    async def asker() -> None:
        for _ in left:
            began = time.perf_counter()
            await client.get(url)
            took.append(1000 * (time.perf_counter() - began))

    await asyncio.gather(*(asker() for _ in range(AT_A_TIME)))
    return took
