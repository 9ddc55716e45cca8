"""A server that listens: streams, waits, clients that leave, and the end of the process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import AsyncGenerator

import httpx
import pytest

from flowfabric import Engine
from flowfabric.server.app import Application
from flowfabric.server.serve import address_of, bind, running
from flowfabric.server.settings import Settings
from tests.worker.facts import eventually

WORKER = {"worker_id": "w", "worker_instance_id": "w-1"}


@pytest.fixture
async def listening(ff_engine: Engine) -> AsyncGenerator[tuple[str, Application]]:
    settings = Settings(listen="127.0.0.1:0", api_tokens=())
    with bind(settings) as bound:
        async with running(ff_engine, settings, bound) as application:
            yield address_of(bound), application


@pytest.fixture
async def remote(listening: tuple[str, Application]) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of that server, over TCP."""
    async with httpx.AsyncClient(base_url=listening[0], timeout=30) as client:
        yield client


async def events_of(answer: httpx.Response, count: int) -> list[tuple[str, str]]:
    """The first events of a stream: their ids and names."""
    found: list[tuple[str, str]] = []
    place = ""
    async for line in answer.aiter_lines():
        if line.startswith("id: "):
            place = line[4:]
        elif line.startswith("event: "):
            found.append((place, line[7:]))
            if len(found) == count:
                break
    return found


async def test_events_are_followed_and_resumed_without_a_gap(remote: httpx.AsyncClient) -> None:
    url = "/v1/events/live?family=completion,operator"
    for _ in range(3):
        made = await remote.post("/v1/executions", json={"execution_kind": "job"})
        await remote.post(made.headers["location"] + "/cancel", json={})
    async with remote.stream("GET", url + "&cursor=c0.o0") as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        every = await events_of(answer, 6)
    assert sorted(name for _, name in every) == ["completion"] * 3 + ["operator"] * 3
    for seen in (1, 3, 5):
        place = {"last-event-id": every[seen - 1][0]}
        async with remote.stream("GET", url, headers=place) as answer:
            rest = await events_of(answer, 6 - seen)
        assert sorted(name for _, name in rest) == sorted(name for _, name in every[seen:])


async def test_frames_are_followed_as_they_are_appended(remote: httpx.AsyncClient) -> None:
    made = await remote.post("/v1/executions", json={"execution_kind": "job"})
    [work] = (await remote.post("/v1/work/claim", json=WORKER)).json()["executions"]

    async def append(number: int) -> None:
        frames = [{"payload": number}]
        body = {"appends": [{"handle": work["handle"], "frames": frames}]}
        await remote.post("/v1/work/frames", json=body)

    await append(1)
    url = made.headers["location"] + "/attempts/0/frames/live"
    async with remote.stream("GET", url) as answer:
        reading = asyncio.create_task(events_of(answer, 2))
        await append(2)
        found = await asyncio.wait_for(reading, 20)
    assert [name for _, name in found] == ["frame", "frame"]
    after = {"after": found[0][0], "wait": "5"}
    page = await remote.get(made.headers["location"] + "/attempts/0/frames", params=after)
    assert [each["payload"] for each in page.json()["items"]] == [2]


async def test_a_claim_waits_for_work_and_gives_back_what_its_client_left(
    remote: httpx.AsyncClient, listening: tuple[str, Application], db: object
) -> None:
    services = listening[1].services
    waiting = asyncio.create_task(remote.post("/v1/work/claim", json={**WORKER, "wait": 20}))
    await eventually(lambda: services.meter.waiters == 1)
    made = await remote.post("/v1/executions", json={"execution_kind": "job"})
    claimed = await asyncio.wait_for(waiting, 20)
    assert claimed.status_code == 200
    handle = claimed.json()["executions"][0]["handle"]
    await remote.post("/v1/work/release", json={"handles": [handle]})

    async with httpx.AsyncClient(base_url=listening[0]) as leaving:
        left = asyncio.create_task(
            leaving.post("/v1/work/claim", json={**WORKER, "kinds": ["other"], "wait": 20})
        )
        await eventually(lambda: services.meter.waiters == 1)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
    await eventually(lambda: services.meter.waiters == 0)
    state = await remote.get(made.headers["location"] + "/state")
    assert state.json()["public_state"] == "waiting"


async def test_outcomes_are_waited_for_together(remote: httpx.AsyncClient) -> None:
    many = [{"execution_kind": "job"} for _ in range(3)]
    answer = await remote.post("/v1/executions/batch", json={"executions": many})
    ids = [each["execution_id"] for each in answer.json()["results"]]
    waiting = asyncio.create_task(
        remote.post("/v1/outcomes", json={"execution_ids": ids, "wait": 20})
    )
    await asyncio.sleep(0)
    await remote.post(f"/v1/executions/{ids[1]}/cancel", json={})
    found = (await asyncio.wait_for(waiting, 20)).json()["outcomes"]
    assert [each["execution_id"] for each in found] == [ids[1]]


async def test_a_process_with_open_streams_and_waits_ends_in_time(ff_dsn: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "flowfabric.cli", "server", "--listen", "127.0.0.1:0", "--no-sweeps"),
        env={**os.environ, "FF_DATABASE_URL": ff_dsn},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    address = ""
    while not address:
        line = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
        assert line, "the server did not start"
        found = re.search(r"serving at (\S+)", line)
        address = found[1] if found else ""
    limits = httpx.Limits(max_connections=None)
    async with contextlib.AsyncExitStack() as stack:
        client = httpx.AsyncClient(base_url=address, timeout=60, limits=limits)
        await stack.enter_async_context(client)
        created = await client.post("/v1/executions", json={"execution_kind": "job"})
        answers = [
            await stack.enter_async_context(client.stream("GET", "/v1/events/live"))
            for _ in range(20)
        ]
        wait = {"execution_ids": [created.json()["execution_id"]], "wait": 30}
        waits = [asyncio.create_task(client.post("/v1/outcomes", json=wait)) for _ in range(100)]
        submits = [
            asyncio.create_task(client.post("/v1/executions", json={"execution_kind": "late"}))
            for _ in range(20)
        ]
        acknowledged = await asyncio.gather(*submits)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        empty = await asyncio.gather(*waits)
        last = [b"".join([part async for part in each.aiter_raw()]) for each in answers]
        code = await asyncio.wait_for(process.wait(), 20)
        took = time.monotonic() - began
    await process.stderr.read()
    assert code == 0
    assert took < 10, took  # on a quiet machine 2 s
    assert {each.status_code for each in empty} == {200}
    assert all(each.endswith(b"event: bye\ndata: {}\n\n") for each in last)
    assert {each.status_code for each in acknowledged} == {201}


async def test_several_processes_share_an_address_and_their_counters(ff_dsn: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "flowfabric.cli", "server", "--listen", "127.0.0.1:0", "--processes", "2"),
        env={**os.environ, "FF_DATABASE_URL": ff_dsn},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    addresses: list[str] = []
    while len(addresses) < 2:
        line = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
        assert line, "the servers did not start"
        addresses += re.findall(r"serving at (\S+)", line)
    async with httpx.AsyncClient(base_url=addresses[0], timeout=30) as client:
        answers = [await client.get("/readyz") for _ in range(10)]
    process.send_signal(signal.SIGTERM)
    code = await asyncio.wait_for(process.wait(), 30)
    await process.stderr.read()
    assert addresses[0] == addresses[1]
    assert {each.status_code for each in answers} == {200}
    assert code == 0
