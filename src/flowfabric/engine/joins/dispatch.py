"""Completions of members are dispatched until none is left, and unneeded siblings cancelled."""

from __future__ import annotations

from flowfabric.db.faults import LockTimeout
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection
from flowfabric.db.transaction import transact
from flowfabric.engine.joins.cancel_siblings import GROUPS_AT_ONCE, cancel_batch
from flowfabric.engine.joins.dispatch_completions import Dispatched, dispatch_batch


async def dispatch(pool: Pool) -> int:
    """Dispatch every completion that no other dispatcher works on; answers how many.

    Siblings that a decided join does not need any more are cancelled in between. Each batch is a
    transaction of its own. What another transaction keeps locked is left to the sweep. A completion
    that is committed meanwhile is dispatched by a call after its commit.
    """
    pass_over_locked = False

    async def batch(conn: Connection) -> Dispatched:
        nonlocal pass_over_locked
        try:
            return await dispatch_batch(conn, pass_over_locked=pass_over_locked)
        except LockTimeout:
            pass_over_locked = True  # when the transaction runs again
            raise

    total, more = 0, True
    while more:
        done = await transact(pool, "dispatch_completions", batch)
        total += done.completions
        if done.siblings:
            await _cancel_all(pool)
        more = done.more
    return total


async def _cancel_all(pool: Pool) -> None:
    """Cancel listed siblings until those that are left are locked by other transactions."""
    while True:
        done = await transact(pool, "cancel_siblings", cancel_batch)
        if done.unfinished == 0 and done.moved < GROUPS_AT_ONCE:
            return
