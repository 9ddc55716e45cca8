"""Concurrent submits, and starts, become one statement while the previous one is in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from flowfabric.db.rows import Connection
from flowfabric.db.transaction import repeated, transact
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.create_execution import (
    Created,
    Duplicate,
    NewExecution,
    create_execution,
)
from flowfabric.errors import EngineError, StateError, ValidationError

N = TypeVar("N")
A = TypeVar("A")

BATCH: Final = 500
MEMBERS: Final = 2000
"""Members of flows that are started in one statement, unless a single flow has more."""
FLOW: Final = 20
"""What a flow weighs at least, in members: at most a hundred small ones go together."""
CHUNK: Final = 1000
_SENDING: Final = 4
"""Turns of the loop that it takes to hand a chunk over to the socket."""
_IN_FLIGHT: Final = 2

Answer = Created | Duplicate


async def create_together(
    engine: Engine, chunks: Callable[[], Iterator[Sequence[NewExecution]]]
) -> list[Answer]:
    """Create every execution of every chunk, or none, in one transaction.

    `chunks` makes them one after the other (and the same ones again when asked again): the next is
    made while the database is busy with the one before.
    """

    async def body(conn: Connection) -> list[Answer]:
        answers: list[Answer] = []
        flight: asyncio.Task[list[Answer]] | None = None
        for chunk in chunks():
            if flight is not None:
                answers += await flight
            create = create_execution(conn, chunk, partitions=engine.partitions)
            flight = asyncio.create_task(create)
            for _ in range(_SENDING):
                await asyncio.sleep(0)
        return answers if flight is None else answers + await flight

    return await repeated(lambda: transact(engine.pool, "create_execution", body))


class Batcher(Generic[N, A]):
    """Takes requests one by one, sends them in batches; nobody waits for a full batch.

    What is asked for while a batch is in flight goes into the next, up to `at_most` by `weight`.
    """

    def __init__(
        self,
        send: Callable[[Sequence[N]], Awaitable[Sequence[A | EngineError]]],
        *,
        at_most: int,
        weight: Callable[[N], int] = lambda _: 1,
    ) -> None:
        self._send, self._at_most, self._weight = send, at_most, weight
        self._waiting: list[tuple[N, asyncio.Future[A]]] = []
        self._in_flight: set[asyncio.Task[None]] = set()

    async def ask(self, new: N) -> A:
        """The answer for one, sent together with whatever else is asked for meanwhile."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((new, answer))
        if len(self._in_flight) < _IN_FLIGHT:
            flight = asyncio.create_task(self._fly())
            self._in_flight.add(flight)
            flight.add_done_callback(self._in_flight.discard)
        return await answer

    async def _fly(self) -> None:
        while self._waiting:
            await self._answer(self._next())

    def _next(self) -> list[tuple[N, asyncio.Future[A]]]:
        """As many of those that wait as go into one batch, at least one."""
        many, weight = 0, 0
        for new, _ in self._waiting:
            weight += self._weight(new)
            if many and weight > self._at_most:
                break
            many += 1
        batch, self._waiting = self._waiting[:many], self._waiting[many:]
        return batch

    async def _answer(self, batch: list[tuple[N, asyncio.Future[A]]]) -> None:
        news = [new for new, _ in batch]
        try:
            # The ids are ours: a repeat after a lost answer finds what it created itself.
            answers = await repeated(lambda: self._send(news))
        except (ValidationError, StateError) as refusal:
            # One of them is refused, and with it the batch: halve it until that one stands alone.
            if len(batch) > 1:
                middle = len(batch) // 2
                await self._answer(batch[:middle])
                await self._answer(batch[middle:])
                return
            answers = [refusal]
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, EngineError):
                future.set_exception(answer)
            else:
                future.set_result(answer)
