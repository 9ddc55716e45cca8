"""The budgets, page by page."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.budgets.status import STATUS_COLUMNS, BudgetStatus, StoredBudget
from flowfabric.errors import invalid_input
from flowfabric.ids import check_is_text, parse_uuid
from flowfabric.pages import FIRST_ID, check_limit

LIST_BUDGETS: Final[LiteralString] = f"""
-- budgets.list_budgets
SELECT {STATUS_COLUMNS}, p.partition_key
  FROM ff.budget_policy p
 WHERE (p.partition_key, p.budget_id) > (%(after_partition)s::smallint, %(after_id)s::uuid)
 ORDER BY p.partition_key, p.budget_id LIMIT %(limit)s
"""


class BudgetPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some budgets, and the cursor for the next page if there is one."""

    budgets: list[BudgetStatus]
    next_cursor: str | None


class _Listed(StoredBudget, frozen=True):
    partition_key: int


async def list_budgets(
    conn: Connection, *, cursor: str | None = None, limit: int = 100
) -> BudgetPage:
    """At most `limit` budgets after `cursor`, in a fixed order; raises `ValidationError`."""
    check_limit(limit)
    after_partition, after_id = (-1, FIRST_ID) if cursor is None else _place(cursor)
    rows = await fetch_all(
        conn,
        LIST_BUDGETS,
        _Listed,
        after_partition=after_partition,
        after_id=after_id,
        limit=limit + 1,
    )
    page, last = rows[:limit], rows[limit - 1] if len(rows) > limit else None
    return BudgetPage(
        budgets=[row.status() for row in page],
        next_cursor=None if last is None else f"{last.partition_key}:{last.budget_id}",
    )


def _place(cursor: str) -> tuple[int, object]:
    partition, colon, budget = check_is_text(cursor, field="cursor").partition(":")
    if not colon or not partition.isdecimal() or not 0 <= int(partition) < 2**15:
        raise invalid_input("cursor", cursor, "must be that of a page before")
    return int(partition), parse_uuid(budget, field="cursor", given=cursor)
