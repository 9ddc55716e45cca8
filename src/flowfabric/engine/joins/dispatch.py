"""Completions of members are dispatched until none is left, and unneeded siblings cancelled."""

from __future__ import annotations

from flowfabric.db.pool import Pool
from flowfabric.db.transaction import transact
from flowfabric.engine.joins.cancel_siblings import GROUPS_AT_ONCE, cancel_siblings
from flowfabric.engine.joins.dispatch_completions import dispatch_batch


async def dispatch(pool: Pool) -> int:
    """Dispatch every completion that no other dispatcher works on; answers how many.

    Siblings that a decided join does not need any more are cancelled in between. Each batch is a
    transaction of its own.
    """
    total = 0
    while (done := await transact(pool, "dispatch_completions", dispatch_batch)).completions:
        total += done.completions
        if done.siblings:
            while await transact(pool, "cancel_siblings", cancel_siblings) >= GROUPS_AT_ONCE:
                pass
    return total
