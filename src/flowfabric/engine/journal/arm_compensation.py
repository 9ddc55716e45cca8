"""A call is armed: unless the execution succeeds, the call is made."""

from __future__ import annotations

from flowfabric.db.rows import Connection
from flowfabric.engine.journal.compensation import CompensationCall, compensation_write
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.engine.lifecycle.arm_compensations import arm_compensations
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.errors import Refusal


async def arm_compensation(
    conn: Connection, write: EntryWrite, call: CompensationCall
) -> Refusal | None:
    """The entry is recorded and the execution compensates; needs a transaction.

    `write` is done and of kind compensation; its value is made of `call`. A lease that is not held
    gets its `Refusal`, and nothing is written. The call can be repeated. Raises `ValidationError`
    for a write of another kind or state.
    """
    return await write_compensation(conn, compensation_write(write, call), armed=True)


async def write_compensation(conn: Connection, write: EntryWrite, *, armed: bool) -> Refusal | None:
    """The entry is recorded, and the execution compensates or does not; or neither."""
    execution_id = write.lease.execution_id
    # Before the lease, as whatever ends the lease locks them.
    await lock_executions(conn, [execution_id])
    refused = await record_entries(conn, [write])
    if refused:
        return refused[write.lease]
    await arm_compensations(conn, [execution_id], armed=armed)
    return None
