"""Which of the last executions of a schedule have not ended, and which wait for their turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.schedules.overlap import OpenExecution
from flowfabric.ids import ExecutionId

# As text, because one subselect gives one column. An execution that is deleted has ended.
OPEN_OF_SCHEDULE: Final[LiteralString] = """ARRAY(
       SELECT (CASE WHEN e.held THEN 'held' ELSE 'open' END)
              || ' ' || latest.partition_key || ' ' || latest.execution_id
         FROM unnest(s.latest_partitions, s.latest_ids) WITH ORDINALITY
              AS latest (partition_key, execution_id, ordinal)
         CROSS JOIN LATERAL (  -- by key, also if the plan is made while the table is empty
              SELECT e.exceptional_state = 'blocked_by_quota' IS TRUE AS held FROM ff.exec_core e
               WHERE (e.partition_key, e.execution_id)
                   = (latest.partition_key, latest.execution_id)
                 AND e.lifecycle_phase <> 'terminal'
              OFFSET 0) AS e
        ORDER BY latest.ordinal) AS open"""

READ_OPEN: Final[LiteralString] = f"""
-- schedules.read_open_executions
SELECT {OPEN_OF_SCHEDULE}
  FROM (SELECT %(partitions)s::smallint[] AS latest_partitions,
               %(ids)s::uuid[] AS latest_ids) AS s
"""


class _Open(msgspec.Struct, frozen=True):
    open: list[str]


def open_executions(found: Sequence[str]) -> list[OpenExecution]:
    """The array of `OPEN_OF_SCHEDULE` as values, the oldest first."""
    parts = (each.split(" ") for each in found)
    return [
        OpenExecution(ExecutionId(int(partition), UUID(uuid)), word == "held")
        for word, partition, uuid in parts
    ]


async def read_open_executions(
    conn: Connection, latest: Sequence[ExecutionId]
) -> list[OpenExecution]:
    """Those of the executions that have not ended, in the order given."""
    row = await fetch_one(
        conn,
        READ_OPEN,
        _Open,
        partitions=[each.partition_key for each in latest],
        ids=[each.uuid for each in latest],
    )
    return open_executions(row.open)
