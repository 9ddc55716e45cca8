"""The connections of a worker for the transactions of its handlers."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING, Final, Literal, LiteralString, TypeAlias

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.faults import DRIVER_ERRORS, translated
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection, execute
from flowfabric.errors import NeedsDatabase, ResourceExhausted, TransportError
from flowfabric.worker.running_attempt import HeldLeases
from flowfabric.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from asyncpg.transaction import Transaction

_ANSWER_WITHIN: Final = 0.5
"""Within how many seconds a pooler must answer beside an open transaction."""
_ROLLBACK_WITHIN: Final = 5.0

Isolation: TypeAlias = Literal["read committed", "repeatable read", "serializable"]
"""An isolation level, as Postgres names it."""
_LEVELS: Final[dict[Isolation, Literal["read_committed", "repeatable_read", "serializable"]]] = {
    "read committed": "read_committed",
    "repeatable read": "repeatable_read",
    "serializable": "serializable",
}

# A pooler does not keep the settings of a session. The planner settings of the engine are those of
# the role there; the statements of a handler are planned as Postgres likes.
HANDLER_SETTINGS: Final[LiteralString] = """
-- worker.transaction_pool: settings of a handler
SELECT set_config('idle_in_transaction_session_timeout', %(idle_timeout_ms)s, true),
       set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true),
       set_config('enable_mergejoin', 'on', true)
"""
ANSWER: Final[LiteralString] = """
-- worker.transaction_pool: answer
SELECT 1
"""


class TransactionPool:
    """At most `transactions` connections, opened when first needed.

    Postgres ends a transaction that is idle for as long as a lease lasts, and its holder keeps the
    session alive while its lease is held: a worker that freezes locks no row beyond its leases.
    """

    def __init__(
        self,
        database: DatabaseConfig,
        settings: WorkerSettings,
        held_leases: HeldLeases,
        *,
        role: str,
    ) -> None:
        self._database = msgspec.structs.replace(
            database,
            pool_size=settings.transactions,
            idle_transaction_timeout=settings.lease_ttl,
        )
        self.size = settings.transactions
        """How many connections there are at most."""
        self.keep_alive_every = settings.lease_ttl / 3
        self.engine_idle_timeout_ms = round(database.idle_transaction_timeout * 1000)
        """The idle timeout while the engine's statements run."""
        self._held_leases = held_leases
        self._answer_within = min(_ANSWER_WITHIN, settings.lease_ttl / 8)
        self._idle_timeout_ms = f"{round(settings.lease_ttl * 1000)}"
        self._role = role
        self._opening = asyncio.Lock()
        self._pool: Pool | None = None
        self._beside: Pool | None = None
        self._admitting = asyncio.Lock()
        self._next_trial = 0.0

    async def close(self) -> None:
        for pool in (self._pool, self._beside):
            if pool is not None:
                await pool.close()

    async def begin(
        self, stack: contextlib.AsyncExitStack, isolation: Isolation | None = None
    ) -> tuple[Connection, Transaction]:
        """A connection in a transaction; closing `stack` returns the connection to the pool.

        Waits while all connections are in use. Behind a pooler a transaction occupies one of the
        pooler's own connections, whose number is not known here. So it is kept only if another
        statement is answered beside it: at least one connection of the pooler is always left for
        renewals and for everything else. Otherwise raises `ResourceExhausted`, and the next trial
        waits a moment: each takes that connection away from the others for a while.
        """
        async with self._opening:
            if self._pool is None:
                self._pool = await Pool.open(self._database, role=self._role, for_handlers=True)
        conn = await stack.enter_async_context(self._pool.connection())
        if not self._database.pooler:
            return conn, await _begun(conn, isolation)
        async with self._admitting:  # one trial at a time, and a pause after one that failed
            await asyncio.sleep(self._next_trial - time.monotonic())
            return conn, await self._admitted(conn, isolation)

    async def _admitted(self, conn: Connection, isolation: Isolation | None) -> Transaction:
        if any(attempt.failures for attempt in self._held_leases):
            raise ResourceExhausted("pooler connections", "leases wait for their renewal")
        if self._beside is None:
            single = msgspec.structs.replace(self._database, pool_size=1)
            self._beside = await Pool.open(single, role=self._role, for_handlers=True)
        async with self._beside.connection() as beside:
            transaction = await _begun(conn, isolation)
            try:
                await execute(conn, HANDLER_SETTINGS, idle_timeout_ms=self._idle_timeout_ms)
                await self._require_answer(beside)
            except BaseException:
                await rolled_back(conn, transaction)
                raise
        return transaction

    async def _require_answer(self, beside: Connection) -> None:
        """Return once a statement is answered on this connection; else raise `ResourceExhausted`.

        A connection that does not answer is closed. The driver's own timeout would send a cancel
        request, and PgBouncer 1.18 was seen to end when many of those reach it.
        """
        answer = asyncio.ensure_future(beside.fetchval(ANSWER))
        try:
            await asyncio.wait((answer,), timeout=self._answer_within)
        finally:
            if not answer.done():
                beside.terminate()
                await asyncio.wait((answer,))
                self._next_trial = time.monotonic() + self._answer_within * random.uniform(2, 4)
        try:
            with translated(ANSWER):
                answer.result()
        except TransportError as error:
            raise ResourceExhausted(
                "pooler connections",
                f"no statement was answered within {self._answer_within:g} s beside the "
                "transaction of a handler; raise default_pool_size of the pooler, or lower "
                "transactions of the workers",
            ) from error


class NoTransactions(TransactionPool):
    """A worker over HTTP has no connection to the database for its handlers."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.size = settings.transactions
        self.keep_alive_every = settings.lease_ttl / 3
        self.engine_idle_timeout_ms = 0

    async def close(self) -> None:
        """There is nothing to close."""

    async def begin(
        self, stack: contextlib.AsyncExitStack, isolation: Isolation | None = None
    ) -> tuple[Connection, Transaction]:
        """Raises `NeedsDatabase`."""
        why = "needs a worker that is connected to the database itself, not to a server"
        raise NeedsDatabase("ctx.transaction() or ctx.step_tx()", why)


async def _begun(conn: Connection, isolation: Isolation | None) -> Transaction:
    level = None if isolation is None else _LEVELS[isolation]
    transaction = conn.transaction(isolation=level)
    try:
        with translated("-- worker.transaction: begin\n"):
            await transaction.start()
    except BaseException:  # also a cancellation, after which the transaction may be open
        with contextlib.suppress(*DRIVER_ERRORS):  # the pool may have closed it
            conn.terminate()
        raise
    return transaction


async def rolled_back(conn: Connection, transaction: Transaction) -> None:
    """End the transaction without its changes; a connection that does not answer is closed."""
    try:
        async with asyncio.timeout(_ROLLBACK_WITHIN):
            await transaction.rollback()
    except DRIVER_ERRORS:
        with contextlib.suppress(*DRIVER_ERRORS):  # the pool may have closed it
            conn.terminate()
