"""The abusive callers, in a process of their own: `python -m tests.proofs.abuse.abusers URL …`.

It is told its tokens and how many clients there are, says `ready` when all are connected, and ends
when its standard input does.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import aiohttp
import msgspec

from flowfabric.engine.access.secret import new_secret

Abuse = Callable[["Abuser"], Awaitable[int]]
_TOO_LARGE: Final = b'{"execution_kind": "' + b"x" * (1 << 20) + b'"}'


class Abuser:
    """One client that does the same thing again and again, without a pause."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session, self._url, self._token = session, url, token

    async def call(
        self, method: str, path: str, *, token: str = "", body: bytes | None = None
    ) -> int:
        headers = {
            "authorization": f"Bearer {token or self._token}",
            "content-type": "application/json",
        }
        async with self._session.request(
            method, self._url + path, headers=headers, data=body
        ) as answer:
            await answer.read()
            return answer.status

    async def again(self, abuse: Abuse, told: Counter[int]) -> None:
        while True:
            try:
                told[await abuse(self)] += 1
            except (aiohttp.ClientError, OSError):
                told[0] += 1
                await asyncio.sleep(0.1)  # the connection was closed


ABUSES: Final[Sequence[Abuse]] = (
    lambda each: each.call("GET", "/v1/executions?limit=1000"),
    lambda each: each.call("POST", "/v1/executions", body=b'{"execution_kind": "abuse"}'),
    lambda each: each.call("GET", "/v1/executions?limit=1000000"),
    lambda each: each.call("GET", "/v1/events/live?family=completion"),
    lambda each: each.call("GET", "/v1/executions/count?at_most=10000"),
    lambda each: each.call("POST", "/v1/executions", body=_TOO_LARGE),
    lambda each: each.call("GET", "/v1/whoami", token=new_secret()),
    lambda each: each.call(
        "POST",
        "/v1/work/claim",
        body=b'{"worker_id": "w", "worker_instance_id": "w", "lanes": ["none"], "wait": 30}',
    ),
)
"""Large pages, submits, pages that may not be, streams, counts, bodies that may not be, tokens that
do not exist, and waits."""


async def main(url: str, clients: int, tokens: Sequence[str]) -> None:
    told = Counter[int]()
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        _ = [
            asyncio.create_task(
                Abuser(session, url, tokens[number % len(tokens)]).again(
                    ABUSES[number // len(tokens) % len(ABUSES)], told
                )
            )
            for number in range(clients)
        ]
        await asyncio.sleep(1)
        print("ready", flush=True)  # noqa: T201  for the proof
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        print(msgspec.json.encode(told).decode(), flush=True)  # noqa: T201
        os._exit(0)  # as clients do that are killed


if __name__ == "__main__":
    os.nice(5)  # abusers are on other machines, and take no time from the server
    random.seed(1)
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
