"""Submits many executions in one transaction, encoding one chunk while another is in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final

from flowfabric.db.rows import Connection
from flowfabric.db.transaction import repeated, transact
from flowfabric.engine.lifecycle.create_execution import (
    Creation,
    CreationRow,
    NewExecution,
    creation_answers,
    distinct,
    send_columns,
)
from flowfabric.engine.lifecycle.creation_columns import creation_columns
from flowfabric.errors import IdempotencyConflict, invalid_input

if TYPE_CHECKING:
    from flowfabric.engine.engine import Engine
    from flowfabric.remote.engine_like import EngineLike

CHUNK: Final = 1000
"""How many executions one statement creates."""
_TURNS_TO_SEND: Final = 4
"""How many turns of the event loop it takes until a statement is written to the socket."""


async def create_in_chunks(
    engine: EngineLike,
    chunks: Callable[[], Iterator[Sequence[NewExecution]]],
    *,
    in_one_statement: bool = False,
) -> list[Creation]:
    """Create every execution of every chunk, or none, in one transaction.

    Raises an `IdempotencyConflict` of any of them, and then none is created. `chunks` yields one
    chunk after the other, with ids that were just made, and the same chunks when it is called
    again. The next chunk is made and encoded while the database works on the one before.

    With `in_one_statement` there is a single chunk, without idempotency keys: it needs no BEGIN and
    no COMMIT of its own.
    """
    tries = count()

    async def attempt() -> list[Creation]:
        # The ids are fresh once: a try whose answer was lost may have been committed.
        fresh = next(tries) == 0
        if in_one_statement:
            [chunk] = chunks()
            return await engine.create_execution(chunk, fresh=fresh)
        if engine.is_remote is True:
            return await engine.create_all_or_none(_only(chunks()), fresh=fresh)

        async def create(conn: Connection) -> list[Creation]:
            return await _create(conn, chunks(), partitions=engine.partitions, fresh=fresh)

        return await transact(engine.pool, "create_execution", create)

    return await repeated(attempt)


def _only(chunks: Iterator[Sequence[NewExecution]]) -> Sequence[NewExecution]:
    """The single chunk: a server takes no more in one transaction."""
    first = next(chunks)
    if next(chunks, None) is not None:
        why = f"over HTTP has {CHUNK} calls at most, because all are submitted or none"
        raise invalid_input("submit_many", None, why)
    return first


async def create_all_or_none(engine: Engine, executions: Sequence[NewExecution]) -> list[Creation]:
    """Create every execution, or none if one has an `IdempotencyConflict`, which is raised."""

    async def create(conn: Connection) -> list[Creation]:
        return await _create(conn, iter([executions]), partitions=engine.partitions, fresh=False)

    return await transact(engine.pool, "create_execution", create)


async def _create(
    conn: Connection, chunks: Iterator[Sequence[NewExecution]], *, partitions: int, fresh: bool
) -> list[Creation]:
    answers: list[Creation] = []
    in_flight: tuple[Sequence[NewExecution], asyncio.Task[list[CreationRow]]] | None = None
    try:
        for chunk in chunks:
            columns = creation_columns(distinct(chunk), partitions=partitions, fresh=fresh)
            before = None if in_flight is None else (in_flight[0], await in_flight[1])
            in_flight = chunk, asyncio.create_task(send_columns(conn, columns))
            for _ in range(_TURNS_TO_SEND):
                await asyncio.sleep(0)
            if before is not None:
                answers += without_conflict(creation_answers(*before))
        if in_flight is not None:
            answers += without_conflict(creation_answers(in_flight[0], await in_flight[1]))
        return answers
    finally:
        # After an error the connection is used for the rollback: no statement may run on it.
        if in_flight is not None and not in_flight[1].done():
            await asyncio.gather(in_flight[1], return_exceptions=True)


def without_conflict(answers: list[Creation]) -> list[Creation]:
    """The answers; raises the first `IdempotencyConflict` among them."""
    for answer in answers:
        if isinstance(answer, IdempotencyConflict):
            raise answer
    return answers
