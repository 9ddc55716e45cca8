"""What handlers may wait for: how far it has come, for many executions with one statement."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId, id_columns
from flowfabric.instants import instant

LOOK_AT_WAITS: Final[LiteralString] = """
-- executions.look_at_waits
SELECT named.ordinal, e.signal_seq, joins.decided, joins.decided_at_ms, waitpoints.signals,
       waitpoints.over
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[]) WITH ORDINALITY
       AS named (partition_key, execution_id, ordinal)
 CROSS JOIN LATERAL (  -- by key, also if the plan is made while the tables are empty
       SELECT c.signal_seq FROM ff.exec_core c
        WHERE (c.partition_key, c.execution_id) = (named.partition_key, named.execution_id)
       OFFSET 0) AS e
 CROSS JOIN LATERAL (
       SELECT count(*) AS decided, max(g.fired_at_ms) AS decided_at_ms
         FROM ff.edge_group g
        WHERE (g.waiter_eid, g.partition_key) = (named.execution_id, named.partition_key)
          AND g.waits_as = 'children' AND g.fired_at_ms IS NOT NULL) AS joins
 CROSS JOIN LATERAL (
       SELECT coalesce(sum(w.signal_count), 0)::bigint AS signals,
              count(*) FILTER (WHERE w.state = 'closed' OR w.expires_at_ms <= ff.now_ms()) AS over
         FROM ff.waitpoint_pending w
        WHERE (w.execution_id, w.partition_key)
            = (named.execution_id, named.partition_key)) AS waitpoints
"""


class WaitsSeen(msgspec.Struct, frozen=True):
    """Other than before: something has happened that the handler may wait for."""

    signal_seq: int
    """How many signals were sent by name."""
    decided: int
    """How many joins over children are decided."""
    decided_at: datetime | None
    """When the last of them was."""
    signals: int
    """How many signals its waitpoints have received."""
    over: int
    """How many of its waitpoints take no more."""


class _Row(msgspec.Struct, frozen=True):
    ordinal: int
    signal_seq: int
    decided: int
    decided_at_ms: int | None
    signals: int
    over: int


async def look_at_waits(
    conn: Connection, executions: Sequence[ExecutionId]
) -> dict[ExecutionId, WaitsSeen]:
    """What has happened so far to each of these executions that exists."""
    rows = await fetch_all(conn, LOOK_AT_WAITS, _Row, **id_columns(executions))
    return {
        executions[row.ordinal - 1]: WaitsSeen(
            row.signal_seq, row.decided, instant(row.decided_at_ms), row.signals, row.over
        )
        for row in rows
    }
