"""The stream of a page: told what changed, nothing foreign, and goodbye when the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

from flowfabric import Engine
from flowfabric.ids import new_uuid
from flowfabric.server.app import Application
from flowfabric.states import Role
from tests import given
from tests.dashboard.conftest import Person, send
from tests.worker.facts import eventually

VIEWERS = 200


class Stream:
    """What one open page has heard so far."""

    def __init__(self) -> None:
        self.status, self.heard = 0, b""

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.heard += message.get("body", b"")


@asynccontextmanager
async def listening(
    application: Application, topics: list[str], cookie: str = ""
) -> AsyncGenerator[tuple[Stream, asyncio.Task[None]]]:
    """A page that watches these topics until the block ends."""
    stream, leaves = Stream(), asyncio.Event()
    asked = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        for message in asked:
            return message
        await leaves.wait()
        return {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/ui/live",
        "raw_path": b"/ui/live",
        "root_path": "",
        "scheme": "http",
        "query_string": urlencode([("t", each) for each in topics]).encode(),
        "headers": [(b"host", b"localhost"), (b"cookie", cookie.encode())],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }
    task = asyncio.ensure_future(application(scope, receive, stream.send))
    try:
        yield stream, task
    finally:
        leaves.set()
        await task


async def test_topics_of_another_namespace_are_as_silent_as_unknown_ones(
    served: Application, ff_engine: Engine, person: Person
) -> None:
    new = given.new(namespace="acme")
    await ff_engine.create_execution([new])
    one = new.execution_id
    flow_id = new_uuid()
    await ff_engine.create_flow(flow_id, flow_kind="f", namespace="acme")
    bulk = await ff_engine.start_bulk_action(
        "cancel", executions=[one], namespace="acme", actor="ann", reason="test"
    )
    topics = [f"bulk.{bulk.bulk_id}", f"x.{one.partition_key}.{one.uuid}", f"f.{flow_id}"]
    cookies: list[str] = []
    for namespace in ("acme", "other"):
        who = await person(Role.READER, label=namespace, namespaces=[namespace])
        cookies.append("; ".join(f"{name}={value}" for name, value in who.cookies.items()))

    async with (
        listening(served, topics, cookies[0]) as (own, _),
        listening(served, topics, cookies[1]) as (foreign, _),
    ):

        async def told() -> bool:
            return all(each.encode() in own.heard for each in topics)

        await eventually(told, within=30)  # the beat touches what is watched, in the same moment
        assert (own.status, foreign.status) == (200, 200)
        assert foreign.heard == b": open\n\n"


async def test_every_viewer_hears_goodbye_when_the_server_stops(served: Application) -> None:
    opened = [listening(served, ["overview", "list"]) for _ in range(VIEWERS)]
    pages = [await each.__aenter__() for each in opened]

    async def all_open() -> bool:
        return all(stream.heard for stream, _ in pages)

    await eventually(all_open, within=30)
    served.services.draining.set()
    await asyncio.wait_for(asyncio.gather(*(task for _, task in pages)), 20)

    assert all(stream.heard.endswith(b"event: bye\ndata: {}\n\n") for stream, _ in pages)
    for each in opened:
        await each.__aexit__(None, None, None)


async def test_a_stream_ends_with_the_session_that_opened_it(
    served: Application, ff_engine: Engine, person: Person
) -> None:
    ann = await person(Role.READER, label="ann")
    cookie = "; ".join(f"{name}={value}" for name, value in ann.cookies.items())
    async with listening(served, ["overview"], cookie) as (stream, task):

        async def told() -> bool:
            return b"event: changed" in stream.heard

        await eventually(told, within=30)
        await send(ann, "/logout", {})
        await asyncio.wait_for(asyncio.shield(task), 20)

    assert stream.heard.endswith(b"event: bye\ndata: {}\n\n")
