"""The transaction of a handler: its statements commit with the completion, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, LiteralString

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.faults import DRIVER_ERRORS, translated
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection, execute
from flowfabric.db.transaction import repeated
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.errors import LeaseLost, OperationTimeout, Refusal, TransportError

if TYPE_CHECKING:
    from asyncpg.transaction import Transaction

HANDLER_IDLE_TIMEOUT: Final = 60.0
"""For how many seconds a handler's transaction may be idle between two statements."""

# The handler's statements run with Postgres' default planner settings; the engine's need these.
# The engine's statements lock the execution, so from here on a worker that freezes must not keep
# the transaction open for as long as a handler may.
ENGINE_SETTINGS: Final[LiteralString] = """
-- worker.transaction: settings of the engine
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout_ms)s, true)
"""


class TransactionPool:
    """The connections of a worker for handlers' transactions; opened when first needed."""

    def __init__(self, database: DatabaseConfig, *, size: int, role: str) -> None:
        self._database = msgspec.structs.replace(
            database, pool_size=size, idle_transaction_timeout=HANDLER_IDLE_TIMEOUT
        )
        self.idle_timeout_ms = round(database.idle_transaction_timeout * 1000)
        """The idle timeout while the engine's statements run."""
        self._role = role
        self._opening = asyncio.Lock()
        self._pool: Pool | None = None

    async def pool(self) -> Pool:
        async with self._opening:
            if self._pool is None:
                self._pool = await Pool.open(
                    self._database, role=self._role, planner_settings=False
                )
        return self._pool

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()


class CommitUncertain(Exception):
    """The connection was lost before the commit was answered: it may have happened or not."""


class HandlerTransaction:
    """The transaction of one attempt: begun when the handler asks, ended with the attempt."""

    def __init__(self, transactions: TransactionPool) -> None:
        self._transactions = transactions
        self._conn: Connection | None = None
        self._transaction: Transaction | None = None
        self._stack = contextlib.AsyncExitStack()

    async def begin(self) -> Connection:
        """The connection, in a transaction; waits while the pool has no free connection."""
        if self._conn is None:
            self._conn = await repeated(self._open)  # an idle connection may be broken by now
        return self._conn

    async def _open(self) -> Connection:
        pool = await self._transactions.pool()
        async with contextlib.AsyncExitStack() as opening:
            conn = await opening.enter_async_context(pool.connection())
            transaction = conn.transaction()
            with translated("-- worker.transaction: begin\n"):
                await transaction.start()
            self._transaction, self._stack = transaction, opening.pop_all()
        return conn

    @property
    def begun(self) -> bool:
        """Has the handler asked for the transaction?"""
        return self._conn is not None

    async def complete(self, completion: Completion) -> None:
        """Commit the handler's statements together with its result.

        Raises `LeaseLost` when the lease is not held any more: then nothing is committed.
        Raises `CommitUncertain` when the connection was lost.
        """
        assert self._conn is not None
        assert self._transaction is not None
        try:
            idle_timeout_ms = f"{self._transactions.idle_timeout_ms}"
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
        if self._transaction is not None:
            with contextlib.suppress(*DRIVER_ERRORS):
                await self._transaction.rollback()
        self._transaction = None
        await self._stack.aclose()
        self._conn = None
