"""Usage is counted for a budget without an execution, by an operator."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from flowfabric.budgets import budget_id as id_of
from flowfabric.budgets import check_columns, check_dedup_key
from flowfabric.db.rows import Connection
from flowfabric.engine.budgets.usage import (
    SoftBreach,
    UsageCounted,
    UsageOutcome,
    UsageReport,
    count_usage,
)
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.states import OperatorEventType


async def report_usage_admin(
    conn: Connection,
    budget_id: UUID | str,
    dimensions: Sequence[str],
    deltas: Sequence[int],
    *,
    dedup_key: str | None = None,
    now: datetime | None = None,
    reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
) -> UsageOutcome:
    """The amounts are counted, all or none; a breach is an answer, not an error.

    A budget that nobody has created has no limits. A report with a `dedup_key` counts once in 24
    hours. What is counted leaves an operator event. Needs a transaction. Raises
    `ValidationError(invalid_input)`: lists of unequal lengths, a dimension that is named twice,
    amounts that are not whole numbers from 0 to 2^63-1.
    """
    [amounts] = check_columns(dimensions, deltas=deltas)
    report = UsageReport(
        budget_id=id_of(budget_id), dimensions=amounts, dedup_key=check_dedup_key(dedup_key)
    )
    check_actor(actor)
    [outcome] = await count_usage(conn, [report], now=now)
    if isinstance(outcome, UsageCounted | SoftBreach):
        await operator_event(
            conn,
            OperatorEventType.USAGE_REPORTED,
            actor=actor,
            reason=reason,
            budget_id=str(report.budget_id),
            amounts=amounts,
        )
    return outcome
