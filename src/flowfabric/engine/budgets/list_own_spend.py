"""What one execution has spent of its budgets in their periods."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId

# The ledger lies in the partitions of budgets: its index by execution finds the few rows.
LIST_OWN_SPEND: Final[LiteralString] = """
-- budgets.list_own_spend
SELECT s.budget_id, s.dimensions_key, s.delta_total
  FROM ff.budget_usage_by_exec s
 WHERE s.execution_id = %(execution_id)s AND s.execution_partition = %(partition_key)s
 ORDER BY s.budget_id, s.dimensions_key
"""


class OwnSpend(msgspec.Struct, frozen=True, kw_only=True):
    """What the execution has spent of one dimension of one budget."""

    budget_id: UUID
    dimension: str
    amount: int


class _Row(msgspec.Struct, frozen=True):
    budget_id: UUID
    dimensions_key: str
    delta_total: int


async def list_own_spend(conn: Connection, execution_id: ExecutionId) -> list[OwnSpend]:
    """By budget and dimension; empty if it has spent nothing, or does not exist."""
    rows = await fetch_all(
        conn,
        LIST_OWN_SPEND,
        _Row,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )
    return [
        OwnSpend(budget_id=row.budget_id, dimension=row.dimensions_key, amount=row.delta_total)
        for row in rows
    ]
