"""suspended → runnable: a join of children that a suspended parent waits for is decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.resume import Resume, resume
from flowfabric.engine.lifecycle.sql.by_key import open_suspension
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState

# A suspend locks the joins that it waits for before it locks the execution, and so does whatever
# decides a join: either the suspend finds the join decided, or this finds the execution suspended.
AWAITING_JOINS: Final[LiteralString] = f"""
-- lifecycle.resume_waiting: the parents whose open suspension waits for one of these joins
SELECT DISTINCT s.partition_key, s.execution_id, s.delay_ms
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[], %(group_id)s::uuid[])
       AS decided (partition_key, execution_id, group_id)
 CROSS JOIN LATERAL (  -- by key, also if the plan is made while the table is empty
       SELECT s.partition_key, s.execution_id,
              coalesce(ff.policy_number(s.resume_policy -> 'resume_delay_ms', 3153600000000), 0)
                  AS delay_ms
         FROM ff.suspension_current s
        WHERE {open_suspension("decided.partition_key", "decided.execution_id")}
          AND decided.group_id = ANY (s.awaits_joins)
       OFFSET 0) AS s
"""


class _Waiting(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    delay_ms: int


async def resume_waiting(
    conn: Connection, joins: Sequence[tuple[ExecutionId, UUID]]
) -> dict[ExecutionId, PublicState]:
    """The suspended ones among these parents that wait for the join beside them can go on.

    Returns their states. The caller has locked the joins and the parents, in that order.
    """
    if not joins:
        return {}
    waiting = await fetch_all(
        conn,
        AWAITING_JOINS,
        _Waiting,
        partition_key=[parent.partition_key for parent, _ in joins],
        execution_id=[parent.uuid for parent, _ in joins],
        group_id=[group_id for _, group_id in joins],
    )
    resumes = [
        Resume(
            execution_id=ExecutionId(row.partition_key, row.execution_id), delay=row.delay_ms / 1000
        )
        for row in waiting
    ]
    return await resume(conn, resumes)
