"""Concurrent submits become one statement while the previous one is in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from flowfabric.db.rows import Connection
from flowfabric.db.transaction import repeated, transact
from flowfabric.engine.facade import Engine
from flowfabric.engine.lifecycle.create_execution import (
    Created,
    Duplicate,
    NewExecution,
    create_execution,
)

BATCH: Final = 500
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


class Gatherer:
    """Takes executions one by one, creates them in batches; nobody waits for a full batch."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: list[tuple[NewExecution, asyncio.Future[Answer]]] = []
        self._in_flight: set[asyncio.Task[None]] = set()

    async def create(self, new: NewExecution) -> Answer:
        """Create one, together with whatever else is asked for meanwhile."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((new, answer))
        if len(self._in_flight) < _IN_FLIGHT:
            flight = asyncio.create_task(self._fly())
            self._in_flight.add(flight)
            flight.add_done_callback(self._in_flight.discard)
        return await answer

    async def _fly(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            news = [new for new, _ in batch]
            try:
                # The ids are ours: a repeat after a lost answer finds what it created itself.
                answers = await repeated(lambda news=news: self._engine.create_execution(news))
            except Exception as error:
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_, answer), given in zip(batch, answers, strict=True):
                if not answer.done():
                    answer.set_result(given)
