"""Children whose parent came to no good end are listed for their cancel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.joins.queue_siblings import list_for_cancel
from flowfabric.ids import ExecutionId
from flowfabric.states import SiblingCancelReason

# A parent that runs again by now, after a replay, keeps its children.
QUEUE_CHILDREN: Final[LiteralString] = """
-- joins.queue_children
SELECT g.partition_key, g.downstream_eid
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS ended (partition_key, execution_id)
  JOIN ff.exec_core p USING (partition_key, execution_id)
  JOIN ff.edge_group g ON (g.partition_key, g.wakes) = (ended.partition_key, ended.execution_id)
 WHERE p.lifecycle_phase = 'terminal' AND p.terminal_outcome <> 'success' AND g.running_count > 0
 ORDER BY g.partition_key, g.downstream_eid
"""


class _Wait(msgspec.Struct, frozen=True):
    partition_key: int
    downstream_eid: UUID


async def queue_children(conn: Connection, parents: Sequence[ExecutionId]) -> bool:
    """List the children of these that have not ended; True if there may be some."""
    if not parents:
        return False
    waits = await fetch_all(
        conn,
        QUEUE_CHILDREN,
        _Wait,
        partition_key=[each.partition_key for each in parents],
        execution_id=[each.uuid for each in parents],
    )
    await list_for_cancel(
        conn,
        [
            (ExecutionId(wait.partition_key, wait.downstream_eid), SiblingCancelReason.PARENT_ENDED)
            for wait in waits
        ],
    )
    return bool(waits)
