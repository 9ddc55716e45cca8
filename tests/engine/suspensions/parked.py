"""Where tests of suspensions begin: executions that are suspended, and their rows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from flowfabric.conditions import Single
from flowfabric.db.rows import Connection
from flowfabric.engine.keys.seed_waitpoint_hmac_secret import seed_waitpoint_hmac_secret
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.suspensions.create_waitpoint import create_waitpoint
from flowfabric.engine.suspensions.deliver_signal import deliver_signal
from flowfabric.engine.suspensions.suspend import suspend
from flowfabric.engine.suspensions.suspension import (
    Fresh,
    Suspended,
    SuspendRequest,
    WaitpointDetails,
)
from flowfabric.engine.suspensions.waitpoint import Waitpoint
from flowfabric.ids import ExecutionId
from flowfabric.states import SignalEffect, TimeoutBehavior
from flowfabric.testing import Clock
from tests import given

SECRET = "5e" * 32
AUTO = TimeoutBehavior.AUTO_RESUME


async def keyed(db: Connection, kid: str = "k1") -> None:
    """A key that signs tokens."""
    await seed_waitpoint_hmac_secret(db, kid, SECRET)


def ask(lease: Lease, key: str = "approval", **fields: Any) -> SuspendRequest:
    """A request to wait for any signal on one fresh waitpoint."""
    fields.setdefault("bindings", (Fresh(waitpoint_key=key),))
    fields.setdefault("condition", Single(key))
    return SuspendRequest(lease=lease, **fields)


def handler(lease: Lease, *names: str, **fields: Any) -> SuspendRequest:
    """A request of a handler that waits for signals of these names, and has read its inbox."""
    fields.setdefault("signals_read", 0)
    fields.setdefault("timeout_behavior", AUTO)
    return SuspendRequest(lease=lease, keeps_waitpoints=True, awaits_signals=names, **fields)


class Parked(msgspec.Struct, frozen=True):
    """A suspended execution: the lease that was given up, and what the holder was answered."""

    lease: Lease
    answer: Suspended

    @property
    def id(self) -> ExecutionId:
        return self.lease.execution_id

    @property
    def waitpoint(self) -> WaitpointDetails:
        return self.answer.waitpoints[0]


async def suspended(db: Connection, request: SuspendRequest) -> Parked:
    """The execution is suspended as the request says."""
    [answer] = await suspend_all(db, [request])
    assert isinstance(answer, Suspended), answer
    return Parked(request.lease, answer)


async def suspend_all(db: Connection, requests: list[SuspendRequest]) -> list[Any]:
    """What `suspend` answers, in a transaction of its own."""
    async with db.transaction():
        return await suspend(db, requests)


async def parked(db: Connection, **fields: Any) -> Parked:
    """An execution that waits for any signal on one waitpoint."""
    return await suspended(db, ask(await given.claimed(db), **fields))


async def pending(
    db: Connection, lease: Lease, key: str = "approval", *, expires_in: float = 3600
) -> Waitpoint:
    """A waitpoint that was made ahead."""
    async with db.transaction():
        return await create_waitpoint(db, lease, key, expires_in=expires_in)


async def deliver(
    db: Connection,
    execution_id: ExecutionId,
    waitpoint: WaitpointDetails | Waitpoint,
    name: str = "approved",
    **fields: Any,
) -> SignalEffect:
    """A signal from an outsider that has the token; its effect."""
    async with db.transaction():
        answer = await deliver_signal(
            db, execution_id, waitpoint.waitpoint_id, waitpoint.token, name, **fields
        )
    return answer.effect  # pyright: ignore[reportAttributeAccessIssue] - never a duplicate here


async def taken_up(db: Connection, execution_id: ExecutionId) -> Lease:
    """Worker w-2 goes on with the execution."""
    [task] = await claim(db, given.OTHER, ttl=30)
    assert task.lease.execution_id == execution_id
    return task.lease


async def suspension(db: Connection, execution_id: ExecutionId) -> dict[str, Any]:
    """The stored suspension of an execution."""
    record = await db.fetchrow(
        "SELECT * FROM ff.suspension_current WHERE (partition_key, execution_id) = ($1, $2)",
        execution_id.partition_key,
        execution_id.uuid,
    )
    assert record is not None
    return dict(record)


async def waitpoints(db: Connection, execution_id: ExecutionId) -> list[dict[str, Any]]:
    """The stored waitpoints of an execution, by their keys."""
    return [
        dict(record)
        for record in await db.fetch(
            "SELECT * FROM ff.waitpoint_pending WHERE execution_id = $1 ORDER BY waitpoint_key",
            execution_id.uuid,
        )
    ]


async def closed(db: Connection, execution_id: ExecutionId) -> tuple[str | None, set[str | None]]:
    """Why the suspension is closed, and why its waitpoints are; None for what is open."""
    return (
        (await suspension(db, execution_id))["close_reason"],
        {each["close_reason"] for each in await waitpoints(db, execution_id)},
    )


async def later(clock: Clock, seconds: float) -> datetime:
    """So many seconds from now, on the clock of the database."""
    return await clock.now() + timedelta(seconds=seconds)


BROKEN = """
SELECT e.execution_id::text, e.lifecycle_phase, s.close_reason
  FROM ff.exec_core e LEFT JOIN ff.suspension_current s USING (partition_key, execution_id)
 WHERE (e.lifecycle_phase = 'suspended')
       <> (s.execution_id IS NOT NULL AND s.closed_at_ms IS NULL)
 UNION ALL
SELECT w.execution_id::text, 'waitpoint ' || w.state, s.close_reason
  FROM ff.waitpoint_pending w LEFT JOIN ff.suspension_current s USING (partition_key, execution_id)
 WHERE w.state = 'active'
   AND (s.closed_at_ms IS NOT NULL OR s.suspension_id IS DISTINCT FROM w.suspension_id)
"""


async def broken(db: Connection) -> list[tuple[Any, ...]]:
    """Where executions, suspensions and waitpoints disagree: never."""
    return [tuple(record) for record in await db.fetch(BROKEN)]
