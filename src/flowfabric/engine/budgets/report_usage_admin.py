"""Usage is counted for a budget without an execution."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from flowfabric.budgets import budget_id as id_of
from flowfabric.budgets import check_columns, check_dedup_key
from flowfabric.db.rows import Connection
from flowfabric.engine.budgets.usage import UsageOutcome, UsageReport, count_usage


async def report_usage_admin(
    conn: Connection,
    budget_id: UUID | str,
    dimensions: Sequence[str],
    deltas: Sequence[int],
    *,
    dedup_key: str | None = None,
    now: datetime | None = None,
) -> UsageOutcome:
    """The amounts are counted, all or none; a breach is an answer, not an error.

    A budget that nobody has created has no limits. A report with a `dedup_key` counts once in 24
    hours. Raises `ValidationError(invalid_input)`: lists of unequal lengths, a dimension that is
    named twice, amounts that are not whole numbers from 0 to 2^63-1.
    """
    [amounts] = check_columns(dimensions, deltas=deltas)
    report = UsageReport(
        budget_id=id_of(budget_id), dimensions=amounts, dedup_key=check_dedup_key(dedup_key)
    )
    [outcome] = await count_usage(conn, [report], now=now)
    return outcome
