"""A budget is locked, if its definition and its period have not changed since it was read."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.refuse_stale import refuse_stale

LOCK_BUDGET_AS_SEEN: Final[LiteralString] = """
-- budgets.lock_budget_as_seen
SELECT updated_at_ms FROM ff.budget_policy
 WHERE (partition_key, budget_id)
     = (ff.budget_partition(%(budget_id)s::uuid), %(budget_id)s::uuid)
   FOR NO KEY UPDATE
"""


class _Budget(msgspec.Struct, frozen=True):
    updated_at_ms: int


async def lock_budget_as_seen(
    conn: Connection, budget_id: UUID, *, seen_at: datetime | None
) -> None:
    """Nobody changes the budget until the transaction ends; without `seen_at` nothing is done.

    Raises `StaleView` for a budget that has changed after `seen_at`. One that does not exist is
    left to the caller.
    """
    if seen_at is None:
        return
    found = await fetch_maybe(conn, LOCK_BUDGET_AS_SEEN, _Budget, budget_id=budget_id)
    if found is not None:
        refuse_stale("budget", budget_id, seen_at, changed_at_ms=found.updated_at_ms)
