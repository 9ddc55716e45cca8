"""A connection: an answer that is known as a whole is one write, and the same by any other way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from flowfabric.server.app import Application
from flowfabric.server.asgi import Sender, send_answer
from flowfabric.server.protocol import AnswerProtocol, http_protocol

WHOAMI = b"GET /v1/whoami HTTP/1.1\r\nhost: localhost\r\nx-request-id: one\r\n"


class Wire(asyncio.Transport):
    """A transport that remembers what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


async def answered(application: Any, request: bytes, *, paused: bool = False) -> Wire:
    """What a connection writes as the answer to this request."""
    config = uvicorn.Config(application, http=AnswerProtocol, log_config=None, access_log=False)
    config.load()
    wire, state = Wire(), ServerState()
    protocol = AnswerProtocol(config=config, server_state=state, app_state={})
    protocol.connection_made(wire)
    if paused:
        protocol.pause_writing()
    protocol.data_received(request + b"\r\n")
    if paused:
        asyncio.get_running_loop().call_soon(protocol.resume_writing)
    await asyncio.gather(*state.tasks)
    if protocol.timeout_keep_alive_task is not None:
        protocol.timeout_keep_alive_task.cancel()
    return wire


async def test_an_answer_is_one_write(server: Application) -> None:
    wire = await answered(server, WHOAMI)

    [written] = wire.writes
    head, _, body = written.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"x-request-id: one" in head.split(b"\r\n")
    assert b"content-length: %d" % len(body) in head.split(b"\r\n")
    assert b'"role":"admin"' in body
    assert not wire.closed


async def test_a_client_that_closes_is_told_so_and_closed(server: Application) -> None:
    wire = await answered(server, WHOAMI + b"connection: close\r\n")

    [written] = wire.writes
    assert written.partition(b"\r\n\r\n")[0].endswith(b"connection: close")
    assert wire.closed


async def test_a_client_that_does_not_read_is_waited_for(server: Application) -> None:
    at_once = await answered(server, WHOAMI)
    later = await answered(server, WHOAMI, paused=True)

    assert b"".join(later.writes) == b"".join(at_once.writes)


async def test_the_head_alone_is_asked_for(server: Application) -> None:
    asked = await answered(server, WHOAMI.replace(b"GET", b"HEAD", 1))
    got = await answered(server, WHOAMI)

    assert b"".join(asked.writes).rstrip() == got.writes[0].partition(b"\r\n\r\n")[0]


async def test_a_value_that_would_end_its_header_is_never_written() -> None:
    async def splitting(scope: Any, receive: Any, send: Any) -> None:
        headers = {"location": "/x\r\nset-cookie: a=b"}
        await send_answer(Sender(scope, send), 200, b"body", headers)

    wire = await answered(splitting, WHOAMI)

    assert b"set-cookie" not in b"".join(wire.writes)


def test_a_release_of_uvicorn_with_unknown_internals_is_served_by_its_own_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert http_protocol() is AnswerProtocol, "check AnswerCycle against the uvicorn that is pinned"

    monkeypatch.setattr(uvicorn, "__version__", "0.55.0")

    assert http_protocol() == "httptools"
