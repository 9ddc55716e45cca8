"""Runs operations in transactions, with retries after conflicts and lost connections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, TypeVar

from flowfabric.at_commit import calls_at_commit
from flowfabric.counters import TRANSACTION_RETRIES
from flowfabric.db.faults import SerializationConflict, translated
from flowfabric.db.notifier import Notifier, notify, notifying_later
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection
from flowfabric.db.signals import signals_at_end
from flowfabric.db.steps import COMMIT, current_step
from flowfabric.errors import RetryExhausted, TransportError

T = TypeVar("T")
Isolation = Literal["read_committed", "repeatable_read", "serializable"]

ATTEMPTS: Final = 3
_FIRST_PAUSE: Final = 0.005
_RETRY_FOR: Final = 15.0


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
        async with pool.connection(operation) as conn:
            with translated(f"-- {operation}\n"), calls_at_commit():
                async with conn.transaction(isolation=isolation):
                    answer = await body(conn)
                    if (step := current_step.get()) is not None:
                        await step(conn, COMMIT)
                    return answer

    return await retried(operation, attempt)


async def run(pool: Pool, operation: str, body: Callable[[Connection], Awaitable[T]]) -> T:
    """Run a body of a single statement, which is its own transaction.

    Retries and raises like `transact`. Where statements are held one by one, its commit is a step
    of its own: only then can another operation meet it between the two.
    """
    if current_step.get() is not None:
        return await transact(pool, operation, body)

    async def attempt() -> T:
        async with pool.connection(operation) as conn:
            with notifying_later(notifier_of(pool)):
                return await body(conn)

    return await retried(operation, attempt)


def notifier_of(pool: Pool) -> Notifier:
    """The notifier of the process, which sends by a connection of its pool."""
    if pool.notifier is None:

        async def send(topics: Sequence[str]) -> None:
            async with pool.connection("notify") as conn:
                await notify(conn, topics)

        pool.notifier = Notifier(send)
    return pool.notifier


async def retried(operation: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """The result of `attempt`, called again after a serialization conflict or deadlock.

    Raises `RetryExhausted` after three conflicts.
    """
    for number in range(1, ATTEMPTS + 1):
        try:
            with signals_at_end():
                return await attempt()
        except SerializationConflict:
            if number < ATTEMPTS:
                TRANSACTION_RETRIES.add(operation)
                await asyncio.sleep(_FIRST_PAUSE * 2 ** (number - 1))
    raise RetryExhausted(operation, ATTEMPTS)


async def repeated(attempt: Callable[[], Awaitable[T]], *, within: float = _RETRY_FOR) -> T:
    """The result of an idempotent `attempt`, called again while the database cannot be reached.

    Pauses grow up to ten seconds, with full jitter. Raises the last `TransportError` when the next
    try would be later than `within` seconds after the first.
    """
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
