"""A crowd that waits for signals, has waitpoints and frames, or something armed; none of it due.

Unlike `crowd`, it is made by the operations themselves.
"""

from __future__ import annotations

from typing import Final

from flowfabric.db.rows import Connection
from flowfabric.engine.journal.arm_compensation import arm_compensation
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.streams.append_frame import Append, append_frames
from flowfabric.engine.streams.frame import NewFrame
from flowfabric.engine.suspensions.suspend import suspend
from flowfabric.instants import instant
from flowfabric.states import FrameMode
from tests import given
from tests.engine.journal.journals import COMPENSATION, entry, refund
from tests.engine.suspensions.parked import ask, handler, keyed, pending
from tests.proofs.crowd import FLOW

DAY_MS: Final = 86_400_000

_DUE: Final = f"""
UPDATE ff.suspension_current SET timeout_at_ms = 1
 WHERE (partition_key, execution_id) IN (
           SELECT partition_key, execution_id FROM ff.suspension_current
            WHERE timeout_at_ms IS NOT NULL LIMIT {FLOW});
UPDATE ff.waitpoint_pending SET expires_at_ms = 1
 WHERE (partition_key, waitpoint_id) IN (
           SELECT partition_key, waitpoint_id FROM ff.waitpoint_pending
            WHERE state = 'pending' LIMIT {FLOW});
WITH old AS (
    UPDATE ff.stream_meta SET expires_at_ms = 1
     WHERE (partition_key, execution_id) IN (
               SELECT partition_key, execution_id FROM ff.stream_meta
                WHERE expires_at_ms IS NOT NULL LIMIT {FLOW})
 RETURNING partition_key, execution_id
)
UPDATE ff.stream_frame f SET ts_ms = 1
  FROM old WHERE (f.partition_key, f.execution_id) = (old.partition_key, old.execution_id);
"""


async def waiting(db: Connection, *, live: int) -> list[Lease]:
    """So many are suspended, so many hold a waitpoint, and so many have armed a compensation.

    Those that hold a waitpoint have a best-effort frame each.

    All have given up their leases; the answer are those of some of the last.
    """
    await keyed(db)
    later = instant(await db.fetchval("SELECT ff.now_ms()") + DAY_MS)
    async with db.transaction():
        await suspend(db, [ask(lease, timeout_at=later) for lease in await _leased(db, live)])
    ahead = await _leased(db, live)
    for lease in ahead:
        await pending(db, lease, expires_in=DAY_MS / 1000)
    live_frame = NewFrame(payload=b"x", mode=FrameMode.BEST_EFFORT, ttl=DAY_MS / 1000)
    await append_frames(db, [Append(lease=lease, frames=[live_frame]) for lease in ahead])
    armed = await _leased(db, live)
    for lease in armed:
        async with db.transaction():
            write = entry(lease, 1, "undo", kind=COMPENSATION)
            assert await arm_compensation(db, write, refund()) is None
    async with db.transaction():  # the leases of the crowd are those of `crowd`
        await suspend(db, [handler(lease, "go") for lease in (*ahead, *armed)])
    return armed[:FLOW]


async def _leased(db: Connection, count: int) -> list[Lease]:
    """Claimed before all others that can be."""
    async with db.transaction():
        await create_execution(db, [given.new(priority=9000) for _ in range(count)])
    async with db.transaction():
        tasks = await claim(db, given.WORKER, ttl=DAY_MS / 1000, limit=count)
    assert len(tasks) == count
    return [task.lease for task in tasks]


async def waits_due(db: Connection, armed: list[Lease]) -> None:
    """Timeouts have passed, frames are too old, and some with something armed have ended."""
    await db.execute(_DUE)
    for lease in armed:
        async with db.transaction():
            await cancel_execution(db, lease.execution_id, reason="no")
