"""Which executions have spent most of a budget in its period."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.budgets import budget_id as id_of
from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.pages import check_limit

LIST_SPEND: Final[LiteralString] = """
-- budgets.list_spend
SELECT s.execution_partition, s.execution_id, s.dimensions_key, s.delta_total, s.updated_at_ms
  FROM ff.budget_usage_by_exec s
 WHERE (s.partition_key, s.budget_id)
     = (ff.budget_partition(%(budget_id)s::uuid), %(budget_id)s::uuid)
   AND (%(namespaces)s::text[] IS NULL
        OR EXISTS (SELECT FROM ff.exec_core e JOIN ff.route r USING (route_id)
                    WHERE (e.partition_key, e.execution_id)
                        = (s.execution_partition, s.execution_id)
                      AND r.namespace = ANY (%(namespaces)s::text[])))
 ORDER BY s.delta_total DESC, s.execution_id LIMIT %(limit)s
"""


class Spend(msgspec.Struct, frozen=True, kw_only=True):
    """What one execution has spent of one dimension."""

    execution_id: ExecutionId
    dimension: str
    amount: int
    updated_at: datetime


class _Row(msgspec.Struct, frozen=True):
    execution_partition: int
    execution_id: UUID
    dimensions_key: str
    delta_total: int
    updated_at_ms: int


async def list_spend(
    conn: Connection,
    budget_id: UUID | str,
    *,
    limit: int = 20,
    namespaces: Sequence[str] | None = None,
) -> list[Spend]:
    """The `limit` (1000) largest amounts of the budget; empty if there is no such budget.

    With `namespaces` only those of executions that are in one of them.
    """
    check_limit(limit)
    rows = await fetch_all(
        conn, LIST_SPEND, _Row, budget_id=id_of(budget_id), limit=limit, namespaces=namespaces
    )
    return [
        Spend(
            execution_id=ExecutionId(row.execution_partition, row.execution_id),
            dimension=row.dimensions_key,
            amount=row.delta_total,
            updated_at=instant(row.updated_at_ms),
        )
        for row in rows
    ]
