"""A handler's own statements: they commit with its completion, or not at all."""

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

HANDLERS_PATIENCE: Final = 60.0

# The connection plans the handler's statements as Postgres likes, and ours as we do. They lock the
# execution: whoever freezes now must not hold it for as long as a handler may rest.
PLAN_AS_WE_DO: Final[LiteralString] = """
-- worker.transaction: the statements that follow are ours
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('idle_in_transaction_session_timeout', %(patience_ms)s, true)
"""


class Transactions:
    """The connections of a worker on which handlers may have transactions; opened when needed."""

    def __init__(self, database: DatabaseConfig, *, at_once: int, role: str) -> None:
        self._database = msgspec.structs.replace(
            database, pool_size=at_once, idle_transaction_timeout=HANDLERS_PATIENCE
        )
        self.patience_ms = round(database.idle_transaction_timeout * 1000)
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


class Unsure(Exception):
    """The line was lost before the answer to the commit: nobody knows whether it happened."""


class OwnTransaction:
    """The transaction of one attempt: begun at the handler's first wish, ended with the attempt."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._conn: Connection | None = None
        self._transaction: Transaction | None = None
        self._stack = contextlib.AsyncExitStack()

    async def begin(self) -> Connection:
        """The connection, in a transaction; waits while others have as many as there may be."""
        if self._conn is None:
            self._conn = await repeated(self._open)  # a line may have died while it lay in the pool
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
        """Has the handler asked for it?"""
        return self._conn is not None

    async def complete(self, completion: Completion) -> None:
        """Commit what the handler did together with its result.

        Raises `LeaseLost` when the execution is no longer the handler's: nothing of it happens.
        Raises `Unsure` when the line was lost.
        """
        assert self._conn is not None
        assert self._transaction is not None
        try:
            patience_ms = f"{self._transactions.patience_ms}"
            await execute(self._conn, PLAN_AS_WE_DO, patience_ms=patience_ms)
            [answer] = await complete(self._conn, [completion])
            if isinstance(answer, Refusal):
                raise LeaseLost(str(answer)) from answer
            transaction, self._transaction = self._transaction, None
            with translated("-- worker.transaction: commit\n"):
                await transaction.commit()
        except (TransportError, OperationTimeout) as error:
            raise Unsure(str(error)) from error

    async def close(self) -> None:
        """Undo what was not committed, and give the connection back."""
        if self._transaction is not None:
            with contextlib.suppress(*DRIVER_ERRORS):
                await self._transaction.rollback()
        self._transaction = None
        await self._stack.aclose()
        self._conn = None
