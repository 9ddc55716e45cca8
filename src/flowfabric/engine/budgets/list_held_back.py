"""Which executions a budget holds back."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.budgets import budget_id as id_of
from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.pages import check_limit

# An index holds what budgets hold back, and nothing else; of those at most so many are looked at.
LIST_HELD_BACK: Final[LiteralString] = """
-- budgets.list_held_back
WITH held AS (
    SELECT e.partition_key, e.execution_id, e.route_id, e.priority, e.created_at_ms
      FROM ff.exec_core e
     WHERE e.exceptional_state = 'blocked_by_budget' AND e.budget_ids @> ARRAY[%(budget_id)s::uuid]
     LIMIT %(most)s
)
SELECT held.partition_key, held.execution_id, r.namespace, r.lane_id, r.execution_kind,
       held.priority, held.created_at_ms, (count(*) OVER ())::integer AS found
  FROM held JOIN ff.route r USING (route_id)
 ORDER BY held.priority DESC, held.created_at_ms, held.execution_id LIMIT %(limit)s
"""
COUNTED: Final = 10_000


class HeldBack(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that waits until one of its budgets has room."""

    execution_id: ExecutionId
    namespace: str
    lane_id: str
    execution_kind: str
    priority: int
    created_at: datetime


class HeldBackPage(msgspec.Struct, frozen=True, kw_only=True):
    """How many a budget holds back, counted up to 10,000, and the first of them."""

    count: int
    executions: list[HeldBack]


class _Row(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    namespace: str
    lane_id: str
    execution_kind: str
    priority: int
    created_at_ms: int
    found: int


async def list_held_back(
    conn: Connection, budget_id: UUID | str, *, limit: int = 20
) -> HeldBackPage:
    """The `limit` (1000) that will be let go first; raises `ValidationError(invalid_input)`."""
    check_limit(limit)
    rows = await fetch_all(
        conn, LIST_HELD_BACK, _Row, budget_id=id_of(budget_id), limit=limit, most=COUNTED
    )
    return HeldBackPage(
        count=rows[0].found if rows else 0,
        executions=[
            HeldBack(
                execution_id=ExecutionId(row.partition_key, row.execution_id),
                namespace=row.namespace,
                lane_id=row.lane_id,
                execution_kind=row.execution_kind,
                priority=row.priority,
                created_at=instant(row.created_at_ms),
            )
            for row in rows
        ],
    )
