"""Steps in transactions: the user's rows and the entry are committed together, once."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, LiteralString, get_args

from flowfabric.db.faults import (
    DRIVER_ERRORS,
    SerializationConflict,
    as_flowfabric_error,
    translated,
)
from flowfabric.db.foreign import fetch_on
from flowfabric.db.kept_alive import is_lost
from flowfabric.db.rows import execute
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.errors import (
    ConfigError,
    OperationTimeout,
    ResourceExhausted,
    TransportError,
    Unavailable,
    invalid_input,
)
from flowfabric.worker.durable.lease_lost import lease_lost
from flowfabric.worker.durable.step import StepSettings
from flowfabric.worker.durable.steps import StepRun
from flowfabric.worker.transaction import ENGINE_SETTINGS
from flowfabric.worker.transaction_pool import Isolation, rolled_back

if TYPE_CHECKING:
    from asyncpg.transaction import Transaction

    from flowfabric.db.rows import Connection
    from flowfabric.engine.journal.entry import EntryWrite, JournalEntry
    from flowfabric.worker.durable.durable import Durable
    from flowfabric.worker.durable.journal import KnownEntry
    from flowfabric.worker.durable.keys import EntryKey

_ISOLATIONS: Final = get_args(Isolation)
_TRIES: Final = 3
_FIRST_PAUSE: Final = 0.005
_WAIT_BESIDE_OWN: Final = 5.0
"""Seconds that a step waits for a connection while its handler has another one."""

RECORD_ENTRY: Final[LiteralString] = """
-- worker.step_tx: an entry, on a connection of the handler
SELECT ff.record_entry(%(partition_key)s::smallint, %(execution_id)s::uuid,
                       %(attempt_index)s::integer, %(lease_epoch)s::bigint, %(lease_id)s::uuid,
                       %(seq)s::integer, %(name)s::text, %(item)s::text, %(occurrence)s::integer,
                       %(started_at_ms)s::bigint, %(fingerprint)s::bigint, %(encoding)s::text,
                       %(value)s::bytea)
"""


class _CommitUncertain(Exception):
    """The connection was lost before the commit was answered."""


async def run_step_tx(durable: Durable, run: StepRun, isolation: Isolation) -> Any:
    """The recorded result of the step, or that of running its function in a transaction now."""
    if isolation not in _ISOLATIONS:
        raise invalid_input("isolation", isolation, f"must be one of {list(_ISOLATIONS)}")
    entry = await run.recorded()
    if entry is not None:
        return run.finished(entry)
    if durable.transaction.begun and durable.transaction.pool.size == 1:
        why = "ctx.transaction() has the only connection of the worker; raise its transactions"
        raise ConfigError("step_tx", "transactions", why)
    await durable.flush()
    conflicts = 0
    while True:
        durable.parking.check()
        try:
            with durable.parking.busy(), run.entered():
                return await _in_transaction(durable, run, isolation)
        except _CommitUncertain:
            entry = await _settled(durable, run.key)
            if entry is not None:
                return run.finished(entry)
        except (TransportError, OperationTimeout, ResourceExhausted, Unavailable):
            raise  # the attempt is released: another one runs the step again
        except Exception as error:
            conflicts += isinstance(error, SerializationConflict)
            if not isinstance(error, SerializationConflict) or conflicts == _TRIES:
                await run.failed(error)
                raise
            await asyncio.sleep(_FIRST_PAUSE * 2 ** (conflicts - 1))


async def _in_transaction(durable: Durable, run: StepRun, isolation: Isolation) -> Any:
    async with contextlib.AsyncExitStack() as stack:
        conn, transaction = await _begun(durable, stack, isolation)
        try:
            value = await _called(conn, run)
            write, read = run.completed(value)
            await durable.services.frames.flush(durable.attempt)
            await _record(durable, conn, write, in_snapshot=isolation != "read committed")
        except BaseException:
            await rolled_back(conn, transaction)
            raise
        try:
            with translated("-- worker.step_tx: commit\n"):
                await transaction.commit()
        except (TransportError, OperationTimeout) as error:
            raise _CommitUncertain from error
        return read


async def _begun(
    durable: Durable, stack: contextlib.AsyncExitStack, isolation: Isolation
) -> tuple[Connection, Transaction]:
    """A connection in a transaction; waits while all are in use.

    Handlers that keep the connection of `ctx.transaction()` while they wait for another one may all
    wait for one another: such a wait ends with `ResourceExhausted`, which releases the attempt.
    """
    pool = durable.transaction.pool
    if not durable.transaction.begun:
        return await pool.begin(stack, isolation)
    limit = asyncio.timeout(_WAIT_BESIDE_OWN)
    try:
        async with limit:
            return await pool.begin(stack, isolation)
    except TimeoutError:
        if not limit.expired():
            raise
        raise ResourceExhausted(
            "connections of handlers",
            f"all {pool.size} were in use for {_WAIT_BESIDE_OWN:g} s, one of them by "
            "ctx.transaction() of this handler; raise transactions of the worker",
        ) from None


async def _called(conn: Connection, run: StepRun) -> Any:
    """What the function returns; its own errors, but for conflicts and a lost connection."""
    try:
        return await run.step.function(conn, *run.args)
    except DRIVER_ERRORS as error:
        told = as_flowfabric_error(error, "worker.step_tx")
        if isinstance(told, SerializationConflict) or is_lost(conn):
            raise told from error
        raise


async def _record(
    durable: Durable, conn: Connection, write: EntryWrite, *, in_snapshot: bool
) -> None:
    idle_timeout_ms = f"{durable.transaction.pool.engine_idle_timeout_ms}"
    await execute(conn, ENGINE_SETTINGS, idle_timeout_ms=idle_timeout_ms)
    refused = await record_entries(conn, [write], in_snapshot=in_snapshot)
    if refused:
        lease_lost(durable.attempt, refused[write.lease])


async def _settled(durable: Durable, key: EntryKey) -> JournalEntry | None:
    """The entry, if the transaction whose answer was lost has committed; waits for its end."""
    attempt, engine = durable.attempt, durable.services.engine
    await durable.fenced(lambda: engine.wait_for_entries(attempt.lease))
    stored = await durable.services.read_journal(attempt)
    for entry in stored.entries:
        if (entry.name, entry.item, entry.occurrence) == tuple(key):
            return entry
    return None


class OpenStep:
    """A step whose work the handler does itself, with a driver of its own.

    If it is `done`, `value` is its result; else the handler does the work and calls `complete`.
    """

    def __init__(self, durable: Durable, run: StepRun, entry: KnownEntry | None) -> None:
        self._durable, self._run, self._entry = durable, run, entry
        self.done = entry is not None
        self.value: Any = run.finished(entry) if entry is not None else None

    async def complete(self, value: object = None, *, conn: Any = None) -> Any:
        """Record the value; with `conn` in its transaction, which the caller then commits.

        `conn` is any connection that `client.submit(conn=)` takes. Returns the value as it is read
        back. After a rollback the work can be done again, and completed again. Raises `ConfigError`
        for a step that was done before it began.
        """
        if self._entry is not None:
            raise ConfigError("begin_step", "complete", "the step is done already")
        if conn is None:
            self.value = await self._run.complete(value)
        else:
            self._durable.parking.check()
            write, self.value = self._run.completed(value)
            with self._durable.parking.busy():
                await self._durable.services.frames.flush(self._durable.attempt)
                await fetch_on(conn, RECORD_ENTRY, _columns(write))
        self.done = True
        return self.value


async def begin_step(durable: Durable, run: StepRun) -> OpenStep:
    """The step of this call, done or to be done."""
    entry = await run.recorded()
    if entry is None:
        await durable.flush()
    return OpenStep(durable, run, entry)


def open_step(name: str, returns: Any) -> StepSettings:
    """A step whose function is the handler itself."""
    return StepSettings(name=name, function=_nothing, returns=returns)


def _nothing() -> None:
    """Stands for the work that the handler does itself."""


def _columns(write: EntryWrite) -> dict[str, Any]:
    lease = write.lease
    return {
        "partition_key": lease.execution_id.partition_key,
        "execution_id": lease.execution_id.uuid,
        "attempt_index": lease.attempt_index,
        "lease_epoch": lease.lease_epoch,
        "lease_id": lease.lease_id,
        "seq": write.seq,
        "name": write.name,
        "item": write.item,
        "occurrence": write.occurrence,
        "started_at_ms": round(write.started_at.timestamp() * 1000),
        "fingerprint": write.fingerprint,
        "encoding": write.encoding,
        "value": write.value,
    }
