"""The one transaction and the one retry loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeVar

from flowfabric.db.faults import SerializationConflict, translated
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection
from flowfabric.db.steps import COMMIT, stepping
from flowfabric.errors import RetryExhausted, TransportError

T = TypeVar("T")
Isolation = Literal["read_committed", "repeatable_read", "serializable"]

ATTEMPTS: Final = 3
_FIRST_PAUSE: Final = 0.005
_RECONNECT_FOR: Final = 15.0


async def transact(
    pool: Pool,
    operation: str,
    body: Callable[[Connection], Awaitable[T]],
    *,
    isolation: Isolation = "read_committed",
) -> T:
    """Run `body` in a transaction and commit.

    A serialization conflict or deadlock runs the whole body again, three times in all, then raises
    `RetryExhausted`. Any other error rolls back and is raised at once.
    """

    async def attempt() -> T:
        async with pool.connection() as conn:
            with translated(f"-- {operation}\n"):
                async with conn.transaction(isolation=isolation):
                    answer = await body(conn)
                    if (step := stepping.get()) is not None:
                        await step(conn, COMMIT)
                    return answer

    return await retried(operation, attempt)


async def run(pool: Pool, operation: str, body: Callable[[Connection], Awaitable[T]]) -> T:
    """Run a body of a single statement, which is its own transaction."""

    async def attempt() -> T:
        async with pool.connection() as conn:
            return await body(conn)

    return await retried(operation, attempt)


async def retried(operation: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Call `attempt` until no conflict with another transaction stops it, at most three times."""
    for number in range(1, ATTEMPTS + 1):
        try:
            return await attempt()
        except SerializationConflict:
            if number < ATTEMPTS:
                await asyncio.sleep(_FIRST_PAUSE * 2 ** (number - 1))
    raise RetryExhausted(operation, ATTEMPTS)


async def repeated(attempt: Callable[[], Awaitable[T]], *, within: float = _RECONNECT_FOR) -> T:
    """Call an idempotent `attempt` again while the database cannot be reached, with full jitter."""
    clock = asyncio.get_running_loop().time
    until, pause = clock() + within, 0.1
    while True:
        try:
            return await attempt()
        except TransportError:
            wait = random.uniform(0, pause)
            if clock() + wait > until:
                raise
            await asyncio.sleep(wait)
            pause = min(pause * 2, 10.0)
