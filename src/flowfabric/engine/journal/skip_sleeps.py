"""Sleeps of handlers are over before their time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.journal.entry import entry_key
from flowfabric.ids import ExecutionId, id_columns

SKIP_SLEEPS: Final[LiteralString] = """
-- journal.skip_sleeps
WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS named (partition_key, execution_id)
), sleeping AS (      -- of several the one that would be over first
    SELECT named.partition_key, named.execution_id, s.seq
      FROM named CROSS JOIN LATERAL (
           SELECT s.seq FROM ff.journal s
            WHERE (s.partition_key, s.execution_id) = (named.partition_key, named.execution_id)
              AND s.kind = 'sleep' AND s.state = 'open'
            ORDER BY s.due_at_ms, s.seq LIMIT 1) AS s
)
UPDATE ff.journal j SET state = 'done', recorded_at_ms = ff.now_ms()
  FROM sleeping
 WHERE j.partition_key = ANY (ARRAY[sleeping.partition_key])
   AND (j.execution_id, j.seq) = (sleeping.execution_id, sleeping.seq)
RETURNING j.partition_key, j.execution_id, j.name, j.item, j.occurrence
"""


class _Skipped(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    name: str
    item: str
    occurrence: int


async def skip_sleeps(
    conn: Connection, executions: Sequence[ExecutionId]
) -> dict[ExecutionId, str]:
    """The sleep that each handler is in is done; its key, of those that are asleep.

    The caller holds the locks of `lock_executions`, and no worker holds the executions.
    """
    rows = await fetch_all(conn, SKIP_SLEEPS, _Skipped, **id_columns(executions))
    return {
        ExecutionId(row.partition_key, row.execution_id): entry_key(
            row.name, row.item, row.occurrence
        )
        for row in rows
    }
