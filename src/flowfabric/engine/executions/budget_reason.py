"""Why a budget holds an execution back: what is used of it, and when it is reset."""

from __future__ import annotations

import shlex
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.budgets import budget_id
from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.executions.explanation import Explanation, ExplanationReason, ReasonCode
from flowfabric.engine.executions.read_limit import BEFORE_AT_MOST, come_before
from flowfabric.engine.executions.words import at
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant

BUDGET_REASON: Final[LiteralString] = """
-- executions.budget_reason
SELECT s.budget_id, s.scope_id, s.dimension, s.used, s.hard_limit, s.next_reset_at_ms,
       (SELECT count(*) FROM (
            SELECT FROM ff.exec_core o
             WHERE o.exceptional_state = 'blocked_by_budget' AND o.budget_ids = e.budget_ids
               AND (-o.priority, o.created_at_ms, o.execution_id)
                 < (-e.priority, e.created_at_ms, e.execution_id)
             LIMIT %(before_at_most)s) AS counted) AS before
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
    before: int


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
        before_at_most=BEFORE_AT_MOST,
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
    named = str(spent.budget_id)
    if spent.scope_id and budget_id(spent.scope_id) == spent.budget_id:
        named = shlex.quote(spent.scope_id)
    reset = "it is not reset by itself"
    if spent.next_reset_at_ms is not None:
        reset = f"it is reset at {at(spent.next_reset_at_ms)}"
    return ExplanationReason(
        why=ReasonCode.BLOCKED,
        message=f"budget {spent.scope_id or named!r} used up: {spent.used} of {spent.hard_limit} "
        f"{spent.dimension}; {reset}, {come_before(spent.before)}",
        remedy="it goes on when there is room again: raise the limit with ff budgets limits "
        f"{named} --hard {shlex.quote(f'{spent.dimension}=N')}, or begin a new period with "
        f"ff budgets reset {named}",
        clears_at=None if spent.next_reset_at_ms is None else instant(spent.next_reset_at_ms),
    )
