"""Children of a parent that did not succeed are listed for cancellation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.joins.queue_siblings import list_for_cancel
from flowfabric.ids import ExecutionId, GroupId, id_columns
from flowfabric.states import SiblingCancelReason

# A parent that was replayed and runs again keeps its children.
QUEUE_CHILDREN: Final[LiteralString] = """
-- joins.queue_children
SELECT g.partition_key, g.group_id
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS ended (partition_key, execution_id)
 CROSS JOIN LATERAL (  -- driven by the parents, however few joins wait for children
       SELECT * FROM ff.edge_group g
        WHERE (g.partition_key, g.waiter_eid) = (ended.partition_key, ended.execution_id)
          AND g.waits_as = 'children' AND g.running_count > 0
       OFFSET 0) AS g
 CROSS JOIN LATERAL (
       SELECT p.lifecycle_phase, p.terminal_outcome FROM ff.exec_core p
        WHERE (p.partition_key, p.execution_id) = (ended.partition_key, ended.execution_id)
       OFFSET 0) AS p
 WHERE p.lifecycle_phase = 'terminal' AND p.terminal_outcome <> 'success'
 ORDER BY g.partition_key, g.group_id
"""


class _Group(msgspec.Struct, frozen=True):
    partition_key: int
    group_id: UUID


async def queue_children(conn: Connection, parents: Sequence[ExecutionId]) -> bool:
    """List the children of these parents that have not ended; True if there may be some."""
    if not parents:
        return False
    groups = await fetch_all(
        conn,
        QUEUE_CHILDREN,
        _Group,
        **id_columns(parents),
    )
    await list_for_cancel(
        conn,
        [
            (GroupId(group.partition_key, group.group_id), SiblingCancelReason.PARENT_ENDED)
            for group in groups
        ],
    )
    return bool(groups)
