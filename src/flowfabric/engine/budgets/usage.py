"""Reports of usage are counted, many in one statement, and answered one by one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString, TypeAlias
from uuid import UUID

import msgspec

from flowfabric.counters import BUDGET_BREACHES
from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId
from flowfabric.instants import epoch_ms

COUNT_USAGE: Final[LiteralString] = """
-- budgets.count_usage
SELECT outcome, dimension, current_usage, limit_value
  FROM ff.report_usage(%(budget_id)s::uuid[], %(deltas)s::jsonb[], %(dedup_key)s::text[],
                       %(execution_partition)s::smallint[], %(execution_id)s::uuid[],
                       %(now_ms)s::bigint)
 ORDER BY ordinal
"""


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """How much more of each dimension was used; checked by the operation that takes it."""

    budget_id: UUID
    dimensions: dict[str, int]
    dedup_key: str = ""
    execution_id: ExecutionId | None = None
    """The execution whose ledger has the amounts too; all reports of a call have one, or none."""


class UsageCounted(msgspec.Struct, frozen=True, kw_only=True):
    """The usage is counted, and no limit is passed."""


class UsageAlreadyApplied(msgspec.Struct, frozen=True, kw_only=True):
    """A report with this key was counted before; nothing has changed."""


class SoftBreach(msgspec.Struct, frozen=True, kw_only=True):
    """The usage is counted; the dimension is over its soft limit.

    In a budget that only warns, the limit may be the hard one.
    """

    dimension: str
    current_usage: int
    """After the report."""
    soft_limit: int


class HardBreach(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is counted: the dimension would be over its hard limit."""

    dimension: str
    current_usage: int
    """Before the report, and now."""
    hard_limit: int


UsageOutcome: TypeAlias = UsageCounted | UsageAlreadyApplied | SoftBreach | HardBreach


class UsageAnswer(msgspec.Struct, frozen=True):
    """One answer row of `ff.report_usage`."""

    outcome: str
    dimension: str | None
    current_usage: int | None
    limit_value: int | None

    def read(self) -> UsageOutcome:
        """The answer as its caller gets it; breaches are counted."""
        dimension, usage, limit = self.dimension, self.current_usage, self.limit_value
        if dimension is None or usage is None or limit is None:
            return UsageCounted() if self.outcome == "ok" else UsageAlreadyApplied()
        if self.outcome == "soft_breach":
            BUDGET_BREACHES.add(dimension, "soft")
            return SoftBreach(dimension=dimension, current_usage=usage, soft_limit=limit)
        BUDGET_BREACHES.add(dimension, "hard")
        return HardBreach(dimension=dimension, current_usage=usage, hard_limit=limit)


async def count_usage(
    conn: Connection, reports: Sequence[UsageReport], *, now: datetime | None = None
) -> list[UsageOutcome]:
    """Count the reports in one statement; the answers come in the order given."""
    if not reports:
        return []
    executions = [each.execution_id for each in reports if each.execution_id is not None]
    answers = await fetch_all(
        conn,
        COUNT_USAGE,
        UsageAnswer,
        budget_id=[each.budget_id for each in reports],
        deltas=[msgspec.json.encode(each.dimensions).decode() for each in reports],
        dedup_key=[each.dedup_key for each in reports],
        execution_partition=[each.partition_key for each in executions] or None,
        execution_id=[each.uuid for each in executions] or None,
        now_ms=None if now is None else epoch_ms(now),
    )
    return [each.read() for each in answers]
