"""What an execution has armed so far is not made any more."""

from __future__ import annotations

from flowfabric.db.rows import Connection
from flowfabric.engine.journal.arm_compensation import write_compensation
from flowfabric.engine.journal.compensation import compensation_write
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.errors import Refusal


async def disarm_compensations(conn: Connection, write: EntryWrite) -> Refusal | None:
    """The entry is recorded, and no compensation before it is armed; needs a transaction.

    `write` is done, of kind compensation and without a value. A lease that is not held gets its
    `Refusal`, and nothing is written. Raises `ValidationError` for another write.
    """
    return await write_compensation(conn, compensation_write(write, None), armed=False)
