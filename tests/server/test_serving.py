"""A server that listens: streams, waits, clients that leave, and the end of the process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

import aiohttp
import httpx
import pytest

from flowfabric import App, Client, Ctx, Engine, ExecutionFailed, Retry
from flowfabric.db.rows import Connection
from flowfabric.ids import ExecutionId
from flowfabric.server.app import Application
from flowfabric.server.limits import RequestLimits
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


async def test_a_handler_over_http_that_asks_for_the_database_fails_once_and_says_why(
    listening: tuple[str, Application],
) -> None:
    app = App()
    begun: list[str] = []

    @app.task("transaction", retry=Retry(max_retries=3))
    async def transaction(ctx: Ctx) -> None:
        begun.append("transaction")
        await ctx.transaction()

    @app.task("step", retry=Retry(max_retries=3))
    async def step(ctx: Ctx) -> None:
        begun.append("step")
        await ctx.step_tx("write", lambda conn: conn.execute("SELECT 1"))

    url = listening[0]
    async with await Client.connect(url) as client, app.worker(url=url):
        handles = await client.submit_many([transaction.call(), step.call()])
        for handle in handles:
            with pytest.raises(ExecutionFailed, match="connected to the database itself"):
                await handle.result(timeout=10)
    assert sorted(begun) == ["step", "transaction"]


async def test_what_waits_or_streams_when_the_server_stops_is_answered_at_once(
    listening: tuple[str, Application], remote: httpx.AsyncClient, ff_engine: Engine
) -> None:
    services = listening[1].services
    services.meter.limits = RequestLimits(streams=1)
    made = await remote.post("/v1/executions", json={"execution_kind": "job"})
    frames = f"{made.headers['location']}/attempts/0/frames?after=0-0&wait=30"
    waiting = asyncio.create_task(remote.get(frames))
    following = asyncio.create_task(remote.get("/v1/events/live?family=completion"))
    await eventually(lambda: services.meter.waiters == 2)
    refused = await remote.get("/v1/events/live?family=completion,lease")

    services.draining.set()
    claimed = await remote.post("/v1/work/claim", json={**WORKER, "wait": 30})
    answers = [await asyncio.wait_for(each, 15) for each in (waiting, following)]

    assert [each.status_code for each in answers] == [200, 200]
    assert answers[0].json()["items"] == []
    assert answers[1].text.endswith("event: bye\ndata: {}\n\n")
    assert claimed.status_code == 204
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")


async def test_the_head_of_a_stream_leaves_the_connection_to_the_next_request(
    listening: tuple[str, Application],
) -> None:
    one = httpx.Limits(max_connections=1)
    async with httpx.AsyncClient(base_url=listening[0], limits=one, timeout=10) as client:
        head = await client.head("/v1/events/live?family=completion")
        wrong = await client.head("/v1/events/live?family=zz")
        after = await client.get("/livez")
    assert (head.status_code, head.headers["content-type"]) == (200, "text/event-stream")
    assert (wrong.status_code, after.status_code) == (422, 200)


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


class Starvation:
    """How long processes were ready to run while others had the cores; from `/proc`."""

    def __init__(self, *pids: int) -> None:
        self._seen = {pid: self._delay(pid) for pid in pids}
        self.seconds = 0.0

    def look(self) -> None:
        """Add what has come since the last look; of processes that are gone nothing more comes."""
        for pid, before in self._seen.items():
            with contextlib.suppress(OSError):
                self._seen[pid] = now = self._delay(pid)
                self.seconds += now - before

    @staticmethod
    def _delay(pid: int) -> float:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


async def _submits_until_refused(client: aiohttp.ClientSession) -> list[str]:
    """The ids of executions whose submit was acknowledged, until the server takes no more."""
    found: list[str] = []
    with contextlib.suppress(aiohttp.ClientError):
        while True:
            body = {"execution_kind": "late"}
            async with client.post("/v1/executions", json=body) as answer:
                if answer.status != 201:
                    break
                found.append((await answer.json())["execution_id"])
    return found


@pytest.mark.timing
async def test_a_process_with_open_streams_and_waits_ends_in_time_and_loses_nothing(
    ff_dsn: str, db: Connection
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "flowfabric.cli", "server", "--listen", "127.0.0.1:0", "--no-sweeps"),
        env={**os.environ, "FF_DATABASE_URL": ff_dsn, "FF_LIMITS": "streams=200"},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    address = ""
    while not address:
        line = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
        assert line, "the server did not start"
        found = re.search(r"serving at (\S+)", line)
        address = found[1] if found else ""
    started = asyncio.Semaphore(0)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(address, connector=connector) as client:

        async def follow() -> bytes:
            async with client.get("/v1/events/live") as answer:
                started.release()
                return await answer.read()

        async def wait(execution_id: str) -> int:
            body = {"execution_ids": [execution_id], "wait": 30}
            async with client.post("/v1/outcomes", json=body) as answer:
                return answer.status

        async with client.post("/v1/executions", json={"execution_kind": "job"}) as answer:
            execution_id = (await answer.json())["execution_id"]
        streams = [asyncio.create_task(follow()) for _ in range(200)]
        waits = [asyncio.create_task(wait(execution_id)) for _ in range(1000)]
        for _ in streams:
            await asyncio.wait_for(started.acquire(), 60)
        submits = [asyncio.create_task(_submits_until_refused(client)) for _ in range(4)]
        # Requests are answered in the order in which they came: the waits have begun by now.
        count = "SELECT count(*) >= 50 FROM ff.exec_core"
        await eventually(lambda: db.fetchval(count), within=60)
        starved, began = Starvation(process.pid, os.getpid()), time.monotonic()
        process.send_signal(signal.SIGTERM)
        ending = asyncio.create_task(process.wait())
        while not ending.done():
            starved.look()
            await asyncio.wait((ending,), timeout=0.02)
        took = time.monotonic() - began
        empty, last = await asyncio.gather(*waits), await asyncio.gather(*streams)
        acknowledged = [each for found in await asyncio.gather(*submits) for each in found]
    await process.stderr.read()
    assert process.returncode == 0
    assert took - starved.seconds < 2, (took, starved.seconds)
    assert set(empty) == {200}
    assert all(each.endswith(b"event: bye\ndata: {}\n\n") for each in last)
    rows = await db.fetch("SELECT partition_key, execution_id FROM ff.exec_core")
    kept = {str(ExecutionId(row["partition_key"], row["execution_id"])) for row in rows}
    assert len(acknowledged) >= 10
    assert set(acknowledged) <= kept


async def test_a_second_signal_ends_a_server_at_once(ff_dsn: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "flowfabric.cli", "server", "--listen", "127.0.0.1:0", "--no-sweeps"),
        env={**os.environ, "FF_DATABASE_URL": ff_dsn, "FF_DRAIN_DELAY": "600"},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    told = ""
    while "serving at" not in told:
        told = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
        assert told, "the server did not start"
    [address] = re.findall(r"serving at (\S+)", told)
    async with httpx.AsyncClient(base_url=address, timeout=30) as client:
        assert (await client.get("/readyz")).status_code == 200
        process.send_signal(signal.SIGTERM)
        while (ready := await client.get("/readyz")).status_code == 200:
            pass
        info = await client.get("/v1/info")
    process.send_signal(signal.SIGINT)
    code = await asyncio.wait_for(process.wait(), 30)
    await process.stderr.read()
    assert (ready.status_code, ready.json()["failing"]) == (503, ["draining"])
    assert info.status_code == 200, "until it drains, requests are answered"
    assert code == 128 + signal.SIGINT


@contextlib.asynccontextmanager
async def two_processes(dsn: str) -> AsyncGenerator[str]:
    """The address of a server of two processes, which drain at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "flowfabric.cli", "server", "--listen", "127.0.0.1:0", "--processes", "2"),
        env={**os.environ, "FF_DATABASE_URL": dsn},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    addresses: list[str] = []
    while len(addresses) < 2:
        line = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
        assert line, "the servers did not start"
        addresses += re.findall(r"serving at (\S+)", line)
    assert addresses[0] == addresses[1]
    yield addresses[0]
    process.send_signal(signal.SIGTERM)
    code = await asyncio.wait_for(process.wait(), 30)
    await process.stderr.read()
    assert code == 0


async def test_several_processes_share_an_address_and_their_counters(ff_dsn: str) -> None:
    async with two_processes(ff_dsn) as address:
        async with httpx.AsyncClient(base_url=address, timeout=30) as client:
            answers = [await client.get("/readyz") for _ in range(10)]

        async def counted() -> bool:
            # A connection of its own: either process may answer, and both tell the same.
            async with httpx.AsyncClient(base_url=address, timeout=30) as another:
                text = (await another.get("/metrics")).text
            label = 'method="GET",path="/readyz",status="200"'
            return f"ff_http_requests_total{{{label}}} 10.0" in text

        for _ in range(3):
            await eventually(counted, within=30)
    assert {each.status_code for each in answers} == {200}


async def test_connections_are_spread_over_the_processes_of_an_address(ff_dsn: str) -> None:
    async with two_processes(ff_dsn) as address:
        host, _, port = address.removeprefix("http://").rpartition(":")

        async def process_of_a_connection() -> bytes:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
            found = re.search(rb"x-request-id: req_([0-9a-f]{16})", answer)
            assert found is not None, answer
            return found[1]  # what the ids of one process begin with

        by_process = Counter(await asyncio.gather(*(process_of_a_connection() for _ in range(200))))
    assert len(by_process) == 2
    assert min(by_process.values()) >= 60, by_process
