"""Usage is counted for one execution, so that it can be given back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from flowfabric.budgets import budget_id as id_of
from flowfabric.budgets import check_amounts, check_dedup_key
from flowfabric.db.rows import Connection
from flowfabric.engine.budgets.usage import UsageOutcome, UsageReport, count_usage
from flowfabric.ids import ExecutionId, check_type

_PREFIX: Final = "spend:"
"""Keys of the ledger are apart from those of reports."""


async def record_spend(
    conn: Connection,
    budget_id: UUID | str,
    execution_id: ExecutionId,
    deltas: Mapping[str, int],
    *,
    idempotency_key: str = "",
) -> UsageOutcome:
    """The amounts are counted and are in the ledger of the execution, or neither.

    `give_back` and `release_budget` take them back. A key that was counted before answers
    `UsageAlreadyApplied`, also after a release: it names a spend that was dealt with. Whether the
    execution exists is not checked. Raises `ValidationError(invalid_input)`; a breach is an answer,
    not an error.
    """
    key = check_dedup_key(idempotency_key, field="idempotency_key")
    report = UsageReport(
        budget_id=id_of(budget_id),
        dimensions=check_amounts(deltas, field="deltas"),
        dedup_key=_PREFIX + key if key else "",
        execution_id=check_type(execution_id, ExecutionId, field="execution_id"),
    )
    [outcome] = await count_usage(conn, [report])
    return outcome
