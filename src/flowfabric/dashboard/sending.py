"""How answers are sent: with the headers of every answer, whole or piece by piece."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from flowfabric.dashboard.answers import SECURITY, Raw, Streamed
from flowfabric.server.asgi import Send, send_answer, send_head


async def send_raw(
    send: Send, answer: Raw, *, request_id: str, cookies: Sequence[str], accepts: bytes
) -> None:
    """Send the bytes, compressed where that is worth it."""
    if "content-encoding" in answer.headers or answer.media.startswith("image/"):
        accepts = b""
    headers = _headers(answer.media, answer.headers, request_id)
    sending = _with_cookies(send, cookies)
    await send_answer(sending, answer.status, answer.data, headers, accepts=accepts)


async def send_pieces(
    send: Send, answer: Streamed, *, request_id: str, cookies: Sequence[str], bare: bool
) -> None:
    """Send each piece when it is there; `bare`: the headers alone.

    What is raised on the way leaves the answer without its end, so that no browser takes the file
    for whole.
    """
    headers = _headers(answer.media, answer.headers, request_id)
    await send_head(_with_cookies(send, cookies), 200, headers)
    async with contextlib.aclosing(answer.pieces) as pieces:
        if not bare:
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _headers(media: str, own: Mapping[str, str], request_id: str) -> dict[str, str]:
    kept = {} if "cache-control" in own else {"cache-control": "no-store"}
    return {**SECURITY, "content-type": media, "x-request-id": request_id, **kept, **own}


def _with_cookies(send: Send, cookies: Sequence[str]) -> Send:
    if not cookies:
        return send
    pairs = [(b"set-cookie", each.encode("latin-1")) for each in cookies]

    async def with_cookies(message: Any) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *pairs]
        await send(message)

    return with_cookies
