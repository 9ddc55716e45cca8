"""Submits many executions in one transaction, encoding one chunk while another is in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from flowfabric.db.rows import Connection
from flowfabric.db.transaction import repeated, transact
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.create_execution import (
    Creation,
    NewExecution,
    create_execution,
)
from flowfabric.errors import IdempotencyConflict

CHUNK: Final = 1000
"""How many executions one statement creates."""
_TURNS_TO_SEND: Final = 4
"""How many turns of the event loop it takes until a statement is written to the socket."""


async def create_in_chunks(
    engine: Engine, chunks: Callable[[], Iterator[Sequence[NewExecution]]]
) -> list[Creation]:
    """Create every execution of every chunk, or none, in one transaction.

    Raises an `IdempotencyConflict` of any of them, and then none is created. `chunks` yields one
    chunk after the other, and the same chunks when it is called again. The next chunk is made while
    the database works on the one before.
    """

    async def create(conn: Connection) -> list[Creation]:
        answers: list[Creation] = []
        in_flight: asyncio.Task[list[Creation]] | None = None
        for chunk in chunks():
            if in_flight is not None:
                answers += without_conflict(await in_flight)
            statement = create_execution(conn, chunk, partitions=engine.partitions)
            in_flight = asyncio.create_task(statement)
            for _ in range(_TURNS_TO_SEND):
                await asyncio.sleep(0)
        return answers if in_flight is None else answers + without_conflict(await in_flight)

    return await repeated(lambda: transact(engine.pool, "create_execution", create))


def without_conflict(answers: list[Creation]) -> list[Creation]:
    """The answers; raises the first `IdempotencyConflict` among them."""
    for answer in answers:
        if isinstance(answer, IdempotencyConflict):
            raise answer
    return answers
