"""Executions that wait: suspended for anything, or asleep."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from flowfabric.db.rows import Connection
from flowfabric.engine.keys.seed_waitpoint_hmac_secret import seed_waitpoint_hmac_secret
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.suspensions.create_waitpoint import create_waitpoint
from flowfabric.engine.suspensions.suspend import suspend
from flowfabric.engine.suspensions.suspension import Suspended, SuspendRequest
from flowfabric.engine.suspensions.waitpoint import Waitpoint
from flowfabric.ids import ExecutionId
from tests import given


async def with_key(db: Connection) -> None:
    """A key signs tokens."""
    await seed_waitpoint_hmac_secret(db, "k1", "ab" * 32)


async def suspended(db: Connection, *, kind: str = "job", **fields: Any) -> ExecutionId:
    """An execution that is suspended for what these fields of a `SuspendRequest` say."""
    lease = await given.claimed(db, execution_kind=kind)
    await suspend_holder(db, lease, **fields)
    return lease.execution_id


async def suspend_holder(db: Connection, lease: Lease, **fields: Any) -> None:
    """The attempt under this lease is suspended."""
    async with db.transaction():
        [answer] = await suspend(db, [SuspendRequest(lease=lease, **fields)])
    assert isinstance(answer, Suspended), answer


async def waiting_for_signal(db: Connection, name: str = "approved", **fields: Any) -> ExecutionId:
    """A handler that waits for a signal by name, as a worker suspends it."""
    return await suspended(
        db,
        detail=f"waits for signal {name!r}",
        keeps_waitpoints=True,
        awaits_signals=(name,),
        signals_read=0,
        **fields,
    )


async def waitpoint(db: Connection, key: str = "approve#0", **fields: Any) -> tuple[Any, Waitpoint]:
    """The lease of an execution, and an open waitpoint of it."""
    await with_key(db)
    lease = await given.claimed(db, **fields)
    async with db.transaction():
        return lease, await create_waitpoint(db, lease, key, expires_in=timedelta(hours=1))


async def asleep(db: Connection, until: datetime, detail: str) -> ExecutionId:
    """A handler that waits for its time, as a worker delays it."""
    lease = await given.claimed(db)
    await delay(db, [DelayRequest(lease=lease, delay_until=until, detail=detail)])
    return lease.execution_id
