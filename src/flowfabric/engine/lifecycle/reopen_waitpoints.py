"""closed → pending: waitpoints that the end of an execution closed, when it is replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, execute
from flowfabric.ids import ExecutionId, id_columns
from flowfabric.states import TerminalOutcome, TimeoutBehavior

REOPEN_WAITPOINTS: Final[LiteralString] = """
-- lifecycle.reopen_waitpoints
WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
                         %(waitpoint_key)s::text[], %(kept)s::boolean[])
        AS named (partition_key, execution_id, waitpoint_key, kept)
), forgotten AS (     -- the handler makes them anew
    DELETE FROM ff.waitpoint_pending w USING named
     WHERE w.execution_id = named.execution_id
       AND w.partition_key = ANY (ARRAY[named.partition_key])
       AND w.waitpoint_key = named.waitpoint_key AND NOT named.kept
 RETURNING w.partition_key, w.waitpoint_id
), keys_forgotten AS (
    DELETE FROM ff.signal_dedup d USING forgotten
     WHERE d.partition_key = ANY (ARRAY[forgotten.partition_key])
       AND d.waitpoint_id = forgotten.waitpoint_id
)
UPDATE ff.waitpoint_pending w
   SET state = 'pending', closed_at_ms = NULL, close_reason = NULL, suspension_id = NULL,
       activated_at_ms = NULL
  FROM named
 WHERE w.execution_id = named.execution_id
   AND w.partition_key = ANY (ARRAY[named.partition_key])
   AND w.waitpoint_key = named.waitpoint_key AND named.kept AND w.state = 'closed'
   AND w.close_reason = ANY (%(ends)s::text[]) AND w.expires_at_ms > ff.now_ms()
"""

_ENDS: Final = [*TerminalOutcome, *(f"timed_out_{each}" for each in TimeoutBehavior)]


class JournalWaitpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A waitpoint that a handler made; `kept` if its journal still says so."""

    execution_id: ExecutionId
    waitpoint_key: str
    kept: bool


async def reopen_waitpoints(conn: Connection, waitpoints: Sequence[JournalWaitpoint]) -> None:
    """Those kept that an end closed take signals again until they expire; the others are deleted.

    Waitpoints whose signals were consumed, and those that expired or were closed by an operator,
    stay closed. The caller holds the locks of `lock_executions`.
    """
    if not waitpoints:
        return
    await execute(
        conn,
        REOPEN_WAITPOINTS,
        waitpoint_key=[each.waitpoint_key for each in waitpoints],
        kept=[each.kept for each in waitpoints],
        ends=_ENDS,
        **id_columns([each.execution_id for each in waitpoints]),
    )
