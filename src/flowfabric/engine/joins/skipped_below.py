"""The members that were skipped below others, across any number of skipped members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId, id_columns

SKIPPED_BELOW: Final[LiteralString] = """
-- joins.skipped_below
WITH RECURSIVE below AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS named (partition_key, execution_id)
     UNION
    SELECT d.partition_key, d.execution_id
      FROM below
     CROSS JOIN LATERAL (  -- driven by the members that were reached
           SELECT g.partition_key, g.waiter_eid
             FROM ff.edge e JOIN ff.edge_group g
               ON (g.partition_key, g.group_id) = (e.partition_key, e.group_id)
            WHERE (e.partition_key, e.upstream_eid) = (below.partition_key, below.execution_id)
              AND e.edge_state = 'applied' AND g.waits_as = 'member'
           OFFSET 0) AS waiter
     CROSS JOIN LATERAL (  -- by its id, however few were skipped
           SELECT d.partition_key, d.execution_id, d.terminal_outcome FROM ff.exec_core d
            WHERE (d.partition_key, d.execution_id) = (waiter.partition_key, waiter.waiter_eid)
           OFFSET 0) AS d
     WHERE d.terminal_outcome = 'skipped'
)
SELECT partition_key, execution_id FROM below
"""


class _Member(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID


async def skipped_below(conn: Connection, members: Sequence[ExecutionId]) -> set[ExecutionId]:
    """The skipped members that a way of skipped members leads to, without the members given."""
    if not members:
        return set()
    rows = await fetch_all(conn, SKIPPED_BELOW, _Member, **id_columns(members))
    return {ExecutionId(row.partition_key, row.execution_id) for row in rows}.difference(members)
