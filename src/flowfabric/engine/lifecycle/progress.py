"""active → active: the holder reports the progress of its attempt."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.fence import AppliedCall, answers, held_leases, holding
from flowfabric.errors import Refusal, invalid_input
from flowfabric.ids import check_is_text, clean_text

PROGRESS: Final[LiteralString] = (
    """
-- lifecycle.progress
"""
    + held_leases()
    + holding()
    + """
    UPDATE ff.exec_core e
       SET progress_pct = coalesce(%(percent)s::smallint, e.progress_pct),
           progress_message = coalesce(%(message)s::text, e.progress_message),
           last_mutation_at_ms = ff.now_ms()
      FROM holding
     WHERE (e.partition_key, e.execution_id, e.lease_epoch)
         = (holding.partition_key, holding.execution_id, holding.lease_epoch - 1)
RETURNING holding.ordinal
"""
)


async def progress(
    conn: Connection, lease: Lease, *, percent: int | None = None, message: str | None = None
) -> Refusal | None:
    """The given fields are stored; None, or the `Refusal` of a lease that is not held."""
    if percent is not None and (type(percent) is not int or not 0 <= percent <= 100):
        raise invalid_input("percent", percent, "must be a whole number from 0 to 100")
    if message is not None:
        check_is_text(message, field="message")
    noted = await fetch_all(
        conn,
        PROGRESS,
        AppliedCall,
        percent=percent,
        message=None if message is None else clean_text(message),
        **fence_columns([lease]),
    )
    [answer] = await answers(conn, [lease], [row.ordinal for row in noted], done=lambda _: None)
    return answer
