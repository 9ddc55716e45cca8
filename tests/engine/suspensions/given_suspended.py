"""Where tests of signals begin: waitpoints, suspended executions, and what was stored of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from flowfabric.conditions import Condition, keys_of
from flowfabric.db.rows import Connection
from flowfabric.engine.keys.seed_waitpoint_hmac_secret import seed_waitpoint_hmac_secret
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.suspensions.create_waitpoint import create_waitpoint
from flowfabric.engine.suspensions.deliver_signal import deliver_signal
from flowfabric.engine.suspensions.signal_answers import SignalAccepted, SignalDuplicate
from flowfabric.engine.suspensions.suspend import suspend as suspend_all
from flowfabric.engine.suspensions.suspension import ResumePolicy, SuspendRequest, UsePending
from flowfabric.engine.suspensions.suspension import Suspended as SuspendedNow
from flowfabric.engine.suspensions.waitpoint import Waitpoint
from flowfabric.ids import ExecutionId
from tests import given

SECRET = "a1" * 32


class Suspended(msgspec.Struct, frozen=True):
    """A suspended execution, and its waitpoints by key."""

    lease: Lease
    waitpoints: dict[str, Waitpoint]

    @property
    def execution_id(self) -> ExecutionId:
        return self.lease.execution_id

    def waitpoint_id(self, key: str) -> UUID:
        return self.waitpoints[key].waitpoint_id


async def leased(db: Connection, **fields: Any) -> Lease:
    """The lease of an execution, and a key that signs tokens."""
    await seed_waitpoint_hmac_secret(db, "k1", SECRET)
    return await given.claimed(db, **fields)


async def pending(
    db: Connection, lease: Lease, key: str = "a", *, expires_in: float = 3600
) -> Waitpoint:
    """A waitpoint that no suspension uses yet."""
    async with db.transaction():
        return await create_waitpoint(db, lease, key, expires_in=expires_in)


async def suspended(
    db: Connection,
    condition: Condition,
    *more_keys: str,
    resume_delay: float | None = None,
    keeps_waitpoints: bool = False,
    **fields: Any,
) -> Suspended:
    """An execution that waits for that condition, with a waitpoint for each key."""
    lease = await leased(db, **fields)
    keys = [*keys_of(condition), *more_keys]
    waitpoints = {key: await pending(db, lease, key) for key in keys}
    found = Suspended(lease, waitpoints)
    await suspend(
        db, found, condition, resume_delay=resume_delay, keeps_waitpoints=keeps_waitpoints
    )
    return found


async def suspend(
    db: Connection,
    held: Suspended,
    condition: Condition,
    *,
    resume_delay: float | None = None,
    keeps_waitpoints: bool = False,
) -> None:
    """The holder of the lease waits for that condition on these waitpoints."""
    request = SuspendRequest(
        lease=held.lease,
        bindings=tuple(
            UsePending(waitpoint_id=each.waitpoint_id) for each in held.waitpoints.values()
        ),
        condition=condition,
        resume_policy=ResumePolicy(resume_delay=resume_delay),
        keeps_waitpoints=keeps_waitpoints,
    )
    async with db.transaction():
        [answer] = await suspend_all(db, [request])
    assert isinstance(answer, SuspendedNow)


async def deliver(
    db: Connection, waitpoint: Waitpoint, name: str = "go", **options: Any
) -> SignalAccepted | SignalDuplicate:
    """A signal from somebody who has the token, in a transaction of its own."""
    async with db.transaction():
        return await deliver_signal(
            db, waitpoint.execution_id, waitpoint.waitpoint_id, waitpoint.token, name, **options
        )


async def accepted(
    db: Connection, waitpoint: Waitpoint, name: str = "go", **options: Any
) -> SignalAccepted:
    """As `deliver`, for a signal that is no duplicate."""
    answer = await deliver(db, waitpoint, name, **options)
    assert isinstance(answer, SignalAccepted)
    return answer


async def waitpoint_row(db: Connection, waitpoint: Waitpoint) -> dict[str, Any]:
    """The stored waitpoint, its signals decoded."""
    row = await db.fetchrow(
        "SELECT * FROM ff.waitpoint_pending WHERE (partition_key, waitpoint_id) = ($1, $2)",
        waitpoint.execution_id.partition_key,
        waitpoint.waitpoint_id,
    )
    assert row is not None
    return {**row, "signals": msgspec.json.decode(row["signals"])}


async def kept(db: Connection, waitpoint: Waitpoint) -> list[str]:
    """The names of the signals that the waitpoint keeps."""
    row = await waitpoint_row(db, waitpoint)
    return [signal["signal_name"] for signal in row["signals"]]


async def suspension(db: Connection, execution_id: ExecutionId) -> dict[str, Any]:
    """The stored suspension."""
    row = await db.fetchrow(
        "SELECT * FROM ff.suspension_current WHERE (partition_key, execution_id) = ($1, $2)",
        execution_id.partition_key,
        execution_id.uuid,
    )
    assert row is not None
    return dict(row)


async def signal_events(db: Connection, execution_id: ExecutionId) -> list[dict[str, Any]]:
    """The events of an execution's signals."""
    rows = await db.fetch(
        "SELECT * FROM ff.signal_event WHERE execution_id = $1 ORDER BY event_id", execution_id.uuid
    )
    return [dict(row) for row in rows]


async def effects(db: Connection, execution_id: ExecutionId) -> list[tuple[str, str]]:
    """(signal_name, effect) of those events."""
    events = await signal_events(db, execution_id)
    return [(event["signal_name"], event["effect"]) for event in events]
