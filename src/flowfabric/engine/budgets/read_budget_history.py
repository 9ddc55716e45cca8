"""How much of a budget was used, over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.budgets import budget_id as id_of
from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.budgets.compact_budget_usage import KEPT
from flowfabric.engine.budgets.sample_budget_usage import HOUR_MS, MINUTE_MS
from flowfabric.errors import invalid_input
from flowfabric.instants import instant
from flowfabric.pages import check_limit
from flowfabric.policy import milliseconds

MAX_STEPS: Final = 1000

# What was noted in the window, what was noted last before it, and the usage now.
READ_BUDGET_HISTORY: Final[LiteralString] = """
-- budgets.read_budget_history
WITH now AS (
    SELECT (ff.now_ms() / %(unit_ms)s::bigint + 1) * %(unit_ms)s::bigint AS end_ms,
           ff.now_ms() AS now_ms
), used AS (
    SELECT u.partition_key, u.budget_id, u.dimensions_key, u.current_value, now.end_ms, now.now_ms,
           now.end_ms - %(window_ms)s::bigint AS begin_ms
      FROM now CROSS JOIN ff.budget_usage u
     WHERE (u.partition_key, u.budget_id)
         = (ff.budget_partition(%(budget_id)s::uuid), %(budget_id)s::uuid)
)
SELECT used.dimensions_key AS dimension, used.begin_ms, noted.at_ms, noted.used, noted.peak
  FROM used CROSS JOIN LATERAL (
       (SELECT h.begins_at_ms AS at_ms, h.used, h.peak FROM ff.budget_usage_history h
         WHERE (h.partition_key, h.budget_id, h.dimensions_key)
             = (used.partition_key, used.budget_id, used.dimensions_key)
           AND h.begins_at_ms < used.begin_ms
         ORDER BY h.begins_at_ms DESC, h.step_ms LIMIT 1)
       UNION ALL
       SELECT h.begins_at_ms, h.used, h.peak FROM ff.budget_usage_history h
        WHERE (h.partition_key, h.budget_id, h.dimensions_key)
            = (used.partition_key, used.budget_id, used.dimensions_key)
          AND h.begins_at_ms >= used.begin_ms AND h.begins_at_ms < used.end_ms
       UNION ALL
       SELECT used.now_ms, used.current_value, used.current_value) AS noted
 ORDER BY dimension, noted.at_ms
"""


class BudgetHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a window, the oldest first."""

    step: float
    """Seconds that a step lasts."""
    begins_at: list[datetime]
    used: dict[str, list[int | None]]
    """By dimension: the highest usage in each step; None before anything was noted."""


class _Row(msgspec.Struct, frozen=True):
    dimension: str
    begin_ms: int
    at_ms: int
    used: int
    peak: int


async def read_budget_history(
    conn: Connection, budget_id: UUID | str, *, window: float | timedelta, steps: int = 60
) -> BudgetHistory:
    """The usage within the last `window`, in at most `steps` (1000) steps of equal length.

    A step is whole minutes, or whole hours in a window of more than a day. The usage is noted once
    a minute; the last step has the usage of now. Empty if nothing was ever used. Raises
    `ValidationError(invalid_input)` for a window under a minute or over 30 days.
    """
    check_limit(steps, at_most=MAX_STEPS, field="steps")
    window_ms = milliseconds(window, field="window")
    if not MINUTE_MS <= window_ms <= milliseconds(KEPT):
        raise invalid_input("window", window, "must be a minute to 30 days")
    unit = MINUTE_MS if window_ms <= 24 * HOUR_MS else HOUR_MS
    step_ms = -(-window_ms // (steps * unit)) * unit
    count = -(-window_ms // step_ms)
    rows = await fetch_all(
        conn,
        READ_BUDGET_HISTORY,
        _Row,
        budget_id=id_of(budget_id),
        unit_ms=unit,
        window_ms=count * step_ms,
    )
    if not rows:
        return BudgetHistory(step=step_ms / 1000, begins_at=[], used={})
    begin = rows[0].begin_ms
    return BudgetHistory(
        step=step_ms / 1000,
        begins_at=[instant(begin + place * step_ms) for place in range(count)],
        used={
            dimension: _levels(list(noted), begin, step_ms, count)
            for dimension, noted in groupby(rows, key=lambda row: row.dimension)
        },
    )


def _levels(noted: Sequence[_Row], begin: int, step_ms: int, count: int) -> list[int | None]:
    """The highest usage of each step; a step without a note has what was used before."""
    found: list[int | None] = []
    level: int | None = None
    left = list(reversed(noted))
    for place in range(count):
        highest = level
        while left and left[-1].at_ms < begin + (place + 1) * step_ms:
            row = left.pop()
            level = row.used
            highest = max(row.peak, highest or 0) if row.at_ms >= begin else row.used
        found.append(highest)
    return found
