"""Does now what the sweeps would do soon, for a worker that waits for it."""

from __future__ import annotations

from typing import Final

from flowfabric.db.pool import Pool
from flowfabric.db.transaction import run
from flowfabric.engine.journal.start_compensations import compensations_due, start_compensations
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.promote_due import delays_due, promote_due
from flowfabric.engine.quotas.unblock_due_keys import keys_due, unblock_due_keys
from flowfabric.engine.schedules.fire_schedules import fire_schedules, schedules_due
from flowfabric.engine.schedules.release_queued import release_queued, turns_due
from flowfabric.engine.suspensions.expire_suspensions import expire_suspensions, suspensions_due
from flowfabric.reconcile.loop import sweep_all
from flowfabric.reconcile.sweeps import SWEEPS

_MAKES_CLAIMABLE: Final = {
    promote_due,
    expire_suspensions,
    start_compensations,
    fire_schedules,
    release_queued,
    unblock_due_keys,
}
_WAKING: Final = tuple(sweep for sweep in SWEEPS if sweep.step in _MAKES_CLAIMABLE)
"""The sweeps that make executions claimable whose time has come."""
_COMPENSATIONS: Final = next(each for each in SWEEPS if each.step is start_compensations)
_DUE: Final = (delays_due, suspensions_due, compensations_due, schedules_due, turns_due, keys_due)
_TIMEOUTS_AT_ONCE: Final = 100


async def make_due_claimable(pool: Pool) -> bool:
    """What is due is claimable; True if something is left, because another process sweeps it."""
    for sweep in _WAKING:
        await sweep_all(pool, sweep)
    return any([await run(pool, "is_due", check) for check in _DUE])


async def compensate(pool: Pool) -> None:
    """The compensations of executions that have failed are claimable."""
    await sweep_all(pool, _COMPENSATIONS)


async def expire_attempts_due(pool: Pool) -> None:
    """Attempts whose time is over have ended: they are retried, or end their executions."""
    await run(pool, "expire_attempts", lambda conn: expire_attempts(conn, _TIMEOUTS_AT_ONCE))
