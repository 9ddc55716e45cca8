"""Waits until a crash of the server cannot lose what was read.

A claim is visible before its WAL is flushed. If the server crashes in between, the claim never
happened, and the id of its lease event is given out again. An event that was delivered, or a cursor
that was stored, must not have such an id: the new event of that id would be passed over.
"""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, execute

# The message is an empty WAL record of a transaction with an id. The commit of such a transaction
# waits for its own WAL, so for all WAL before it, and for a synchronous standby if there is one.
# Comparing positions of the WAL would miss the standby, and wait for the WAL writer, up to 600 ms.
# A standby itself has only what its primary has flushed, and writes no messages.
WAIT_FOR_FLUSH: Final[LiteralString] = """
-- events.wait_for_flush
SELECT CASE WHEN NOT pg_is_in_recovery()
            THEN pg_logical_emit_message(true, 'flowfabric', '') END
"""


async def wait_for_flush(conn: Connection) -> None:
    """Every transaction whose rows were visible before this call is flushed.

    Inside a transaction that is so once the transaction has committed.
    """
    await execute(conn, WAIT_FOR_FLUSH)
