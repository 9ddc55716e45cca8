"""The transaction of a handler: its statements commit with the completion, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, LiteralString

from flowfabric.db.faults import translated
from flowfabric.db.kept_alive import is_lost, keep_alive
from flowfabric.db.rows import Connection, execute
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.errors import LeaseLost, OperationTimeout, Refusal, TransportError
from flowfabric.worker.running_attempt import RunningAttempt
from flowfabric.worker.transaction_pool import TransactionPool, rolled_back

if TYPE_CHECKING:
    from asyncpg.transaction import Transaction

# The handler's statements run with Postgres' default planner settings; the engine's need these.
# The engine's statements lock the execution, so from here on a worker that freezes must not keep
# the transaction open for as long as a handler may.
ENGINE_SETTINGS: Final[LiteralString] = """
-- worker.transaction: settings of the engine
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout_ms)s, true)
"""


class CommitUncertain(Exception):
    """The connection was lost before the commit was answered: it may have happened or not."""


class HandlerTransaction:
    """The transaction of one attempt: begun when the handler asks, ended with the attempt.

    While the lease is held its session is kept alive, however long the handler does something else.
    Every attempt has one of these, and few ask for it: what it needs is made when it is begun.
    """

    __slots__ = (
        "_attempt",
        "_beginning",
        "_closing",
        "_conn",
        "_keeping_alive",
        "_stack",
        "_transaction",
        "pool",
    )

    def __init__(self, transactions: TransactionPool, attempt: RunningAttempt) -> None:
        self.pool, self._attempt = transactions, attempt
        self._conn: Connection | None = None
        self._transaction: Transaction | None = None
        self._stack: contextlib.AsyncExitStack | None = None
        self._beginning: asyncio.Lock | None = None
        self._closing: asyncio.Event | None = None
        self._keeping_alive: asyncio.Task[None] | None = None

    async def begin(self) -> Connection:
        """The connection, in a transaction; waits while the pool has no free connection."""
        if self._beginning is None or self._closing is None:
            self._beginning, self._closing = asyncio.Lock(), asyncio.Event()
        async with self._beginning:
            if self._conn is None:
                async with contextlib.AsyncExitStack() as opening:
                    conn, self._transaction = await self.pool.begin(opening)
                    self._stack = opening.pop_all()
                self._conn = conn
                self._keeping_alive = asyncio.create_task(self._keep_alive(conn, self._closing))
        return self._conn

    async def _keep_alive(self, conn: Connection, closing: asyncio.Event) -> None:
        while not self._attempt.lost:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.pool.keep_alive_every):
                    await closing.wait()
            if closing.is_set() or is_lost(conn):
                return
            await keep_alive(conn)

    @property
    def asked_for(self) -> bool:
        """Was the transaction asked for? Then it is to be closed."""
        return self._beginning is not None

    @property
    def begun(self) -> bool:
        """Has the handler asked for the transaction?"""
        return self._conn is not None

    @property
    def lost(self) -> bool:
        """Is the connection of the transaction closed, and with it everything it did?"""
        return self._conn is not None and is_lost(self._conn)

    async def complete(self, completion: Completion) -> None:
        """Commit the handler's statements together with its result.

        Raises `LeaseLost` when the lease is not held any more: then nothing is committed.
        Raises `CommitUncertain` when the connection was lost.
        """
        assert self._conn is not None
        assert self._transaction is not None
        try:
            idle_timeout_ms = f"{self.pool.engine_idle_timeout_ms}"
            await execute(self._conn, ENGINE_SETTINGS, idle_timeout_ms=idle_timeout_ms)
            [answer] = await complete(self._conn, [completion])
            if isinstance(answer, Refusal):
                raise LeaseLost(str(answer)) from answer
            transaction, self._transaction = self._transaction, None
            with translated("-- worker.transaction: commit\n"):
                await transaction.commit()
        except (TransportError, OperationTimeout) as error:
            raise CommitUncertain(str(error)) from error

    async def close(self) -> None:
        """Roll back what was not committed, and return the connection to the pool."""
        if self._closing is not None:
            self._closing.set()
        if self._keeping_alive is not None:
            await asyncio.wait((self._keeping_alive,))
        if self._conn is not None and self._transaction is not None:
            await rolled_back(self._conn, self._transaction)
        self._transaction = None
        if self._stack is not None:
            await self._stack.aclose()
        self._conn = None
