"""What a worker lets happen now that the sweeps would do soon.

With a database of its own the worker runs the sweeps itself; over HTTP the server does. The sweeps
are most of the engine, so they are imported when the first one is run: a program that only submits
imports this module too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flowfabric.db.transaction import run
from flowfabric.db.vacuum_leases import vacuum_leases as vacuum
from flowfabric.engine.lifecycle.promote_due import promote_due

if TYPE_CHECKING:
    from flowfabric.db.rows import Connection
    from flowfabric.remote.engine_like import EngineLike

_AT_ONCE: Final = 500


async def compensate(engine: EngineLike) -> None:
    """The compensations of executions that have failed are claimable."""
    if engine.is_remote is False:  # the server does so when it records a failure
        from flowfabric.reconcile.make_due_claimable import compensate

        await compensate(engine.pool)


async def expire_attempts(engine: EngineLike) -> None:
    """Attempts whose time is over have ended."""
    if engine.is_remote is True:
        await engine.make_due(timeouts=True)
    else:
        from flowfabric.reconcile.make_due_claimable import expire_attempts_due

        await expire_attempts_due(engine.pool)


async def make_due_claimable(engine: EngineLike) -> bool:
    """What is due is claimable; True if something is left, because another process sweeps it."""
    if engine.is_remote is True:
        return await engine.make_due()
    from flowfabric.reconcile.make_due_claimable import make_due_claimable

    return await make_due_claimable(engine.pool)


async def promote(engine: EngineLike) -> None:
    """Delayed executions whose time has come are claimable."""
    if engine.is_remote is True:
        await engine.make_due()
        return
    while await run(engine.pool, "promote_due", _promote) == _AT_ONCE:
        pass


async def vacuum_leases(engine: EngineLike) -> None:
    """The dead rows of leases and queue are removed; over HTTP that is left to the server."""
    if engine.is_remote is False:
        await run(engine.pool, "vacuum_leases", vacuum)


async def _promote(conn: Connection) -> int:
    return await promote_due(conn, _AT_ONCE)
