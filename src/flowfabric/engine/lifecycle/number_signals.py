"""The signals of an inbox are numbered: each execution counts its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.sql.by_key import execution_row
from flowfabric.ids import ExecutionId, id_columns

NUMBER_SIGNALS: Final[LiteralString] = f"""
-- lifecycle.number_signals
WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
                         %(signals)s::integer[])
        AS named (partition_key, execution_id, signals)
)
UPDATE ff.exec_core e SET signal_seq = e.signal_seq + named.signals
  FROM named
 WHERE {execution_row("named.partition_key", "named.execution_id")}
RETURNING e.partition_key, e.execution_id, e.signal_seq
"""


class _Numbered(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    signal_seq: int


async def number_signals(
    conn: Connection, signals: Mapping[ExecutionId, int]
) -> dict[ExecutionId, int]:
    """Count this many signals more for each execution; returns the number of its last one.

    The caller holds the locks of `lock_executions`.
    """
    rows = await fetch_all(
        conn,
        NUMBER_SIGNALS,
        _Numbered,
        signals=list(signals.values()),
        **id_columns(list(signals)),
    )
    return {ExecutionId(row.partition_key, row.execution_id): row.signal_seq for row in rows}
