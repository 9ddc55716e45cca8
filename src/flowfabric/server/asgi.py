"""The ASGI interface: reading a body, and sending an answer."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

from flowfabric.server.problems import RequestProblem
from flowfabric.server.table import BodyLimit

AsgiScope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

AT_ONCE: Final = "flowfabric.answer"
"""The member of a scope whose server can write a whole answer at once."""
AnswerAtOnce: TypeAlias = Callable[[int, Mapping[str, str], bytes], bool]
"""Writes status, headers and body; False if they have to be sent by messages."""
_COMPRESSED_FROM: Final = 8 * 1024
_LEVEL: Final = 3
"""Of compression: takes 0.6 of the time that 5 takes, and a page becomes 8 % larger."""


class Disconnected(Exception):
    """The client left before it was answered."""


class Sender:
    """Sends the answer to one request, and knows its status, 0 before it has begun."""

    def __init__(self, scope: AsgiScope, send: Send) -> None:
        self._send, self._at_once = send, scope.get(AT_ONCE)
        self.status = 0

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    def at_once(self, status: int, headers: Mapping[str, str], body: bytes) -> bool:
        """Send the whole answer in one write; False if that cannot be, and nothing is sent."""
        if self._at_once is None or not self._at_once(status, headers, body):
            return False
        self.status = status
        return True


async def disconnected(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """The tasks are over; what they raise is not looked at."""
    left = list(tasks)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def read_body(
    receive: Receive, headers: Mapping[bytes, bytes], limit: BodyLimit, path: str
) -> bytes:
    """The body; raises a `RequestProblem` as soon as it is known to be too large."""
    declared = headers.get(b"content-length")
    if declared is not None and declared.isdigit() and int(declared) > limit.size:
        raise _too_large(limit, path)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit.size:
            raise _too_large(limit, path)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: BodyLimit, path: str) -> RequestProblem:
    detail = f"the body of {path} may have {limit.size} bytes"
    return RequestProblem(
        "body_too_large", detail, limit_bytes=limit.size, headers={"connection": "close"}
    )


async def send_answer(
    send: Send,
    status: int,
    body: bytes,
    headers: dict[str, str],
    *,
    accepts: bytes = b"",
) -> None:
    """Send the whole answer, compressed if it is large and the client can read that.

    Headers that follow from the body are put into `headers`.
    """
    if len(body) >= _COMPRESSED_FROM and b"gzip" in accepts:
        body = gzip.compress(body, _LEVEL)
        headers["content-encoding"] = "gzip"
        headers["vary"] = ", ".join(filter(None, (headers.get("vary"), "accept-encoding")))
    if status != 204 and status != 304:
        headers["content-length"] = str(len(body))
    if isinstance(send, Sender) and send.at_once(status, headers, body):
        return
    await send_head(send, status, headers)
    await send({"type": "http.response.body", "body": body})


async def send_head(send: Send, status: int, headers: Mapping[str, str]) -> None:
    """Send status and headers."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
            ],
        }
    )
