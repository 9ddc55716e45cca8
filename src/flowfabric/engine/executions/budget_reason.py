"""Why a budget holds an execution back: what is used of it, and when it is reset."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.executions.explanation import Explanation, ExplanationReason, ReasonCode
from flowfabric.engine.executions.words import at
from flowfabric.ids import ExecutionId

BUDGET_REASON: Final[LiteralString] = """
-- executions.budget_reason
SELECT s.budget_id, s.scope_id, s.dimension, s.used, s.hard_limit, s.next_reset_at_ms
  FROM ff.exec_core e
  LEFT JOIN LATERAL (
       SELECT * FROM ff.spent_budgets(e.budget_ids) ORDER BY budget_id LIMIT 1) AS s ON true
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
   AND e.budget_ids IS NOT NULL
"""


class _Spent(msgspec.Struct, frozen=True):
    budget_id: UUID | None
    scope_id: str | None
    dimension: str | None
    used: int | None
    hard_limit: int | None
    next_reset_at_ms: int | None


async def budget_reason(
    conn: Connection, execution_id: ExecutionId, explanation: Explanation
) -> Explanation:
    """The explanation of an execution that is blocked by a budget, with that budget named."""
    spent = await fetch_maybe(
        conn,
        BUDGET_REASON,
        _Spent,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )
    if spent is None:
        return explanation
    reasons = [
        _reason(spent) if reason.why is ReasonCode.BLOCKED else reason
        for reason in explanation.reasons
    ]
    return msgspec.structs.replace(explanation, reasons=reasons)


def _reason(spent: _Spent) -> ExplanationReason:
    if spent.budget_id is None:
        return ExplanationReason(
            why=ReasonCode.BLOCKED,
            message="a budget held it back, and its budgets have room again",
            remedy="a running worker lets it go within 5 s: is one running? ff workers",
        )
    name = spent.scope_id or str(spent.budget_id)
    reset = "it is not reset by itself"
    if spent.next_reset_at_ms is not None:
        reset = f"it is reset at {at(spent.next_reset_at_ms)}"
    return ExplanationReason(
        why=ReasonCode.BLOCKED,
        message=f"budget {name!r} used up: {spent.used} of {spent.hard_limit} "
        f"{spent.dimension}; {reset}",
        remedy="it goes on when there is room again: raise the limit with ff budgets limits "
        f"{spent.budget_id} --hard {spent.dimension}=N, or begin a new period with ff budgets "
        f"reset {spent.budget_id}",
    )
