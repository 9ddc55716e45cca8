"""active → suspended: the holder gives up its lease until something resumes the execution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.fence import (
    SeenExecution,
    answers,
    held_leases,
    holding,
)
from flowfabric.engine.lifecycle.sql.requeue import requeue
from flowfabric.errors import Refusal
from flowfabric.ids import ExecutionId, clean_text
from flowfabric.states import BlockingReason, LifecyclePhase

MOVE_TO_SUSPENDED: Final[LiteralString] = (
    """
-- lifecycle.move_to_suspended
"""
    + held_leases(
        arrays="%(blocking_reason)s::text[], %(detail)s::text[]",
        names="given_reason, given_detail",
    )
    + holding("given_reason, given_detail")
    + requeue(
        "holding",
        waiting_for="given_reason",
        detail="given_detail",
        suspends="true",
        attempt_outcome="'suspended'",
        infra_releases="0",
        bumps_epoch="false",
        lease_reason="'suspended'",
        by_holder=True,
    )
    + """
SELECT ordinal, eligibility_state = 'blocked_by_operator' AS parked FROM requeued
"""
)


class SuspendedLease(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt under `lease` is to be suspended; `detail` says in words what it waits for."""

    lease: Lease
    blocking_reason: BlockingReason
    detail: str | None = None


class MovedToSuspended(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt is interrupted; it goes on, under the same index, once it is resumed."""

    execution_id: ExecutionId
    repeated: bool = False
    parked: bool = False
    """Its flow was cancelled: instead of being suspended, the execution is ended soon."""


class _Row(msgspec.Struct, frozen=True):
    ordinal: int
    parked: bool


async def move_to_suspended(
    conn: Connection, requests: Sequence[SuspendedLease]
) -> list[MovedToSuspended | Refusal]:
    """Suspend every execution whose lease is still held, in the order given.

    The caller stores in the same transaction what resumes the execution. A call that the same
    holder repeats after a lost answer gets the first answer again.
    """
    leases = [request.lease for request in requests]
    suspended = await fetch_all(
        conn,
        MOVE_TO_SUSPENDED,
        _Row,
        blocking_reason=[request.blocking_reason.value for request in requests],
        detail=[
            None if request.detail is None else clean_text(request.detail) for request in requests
        ],
        **fence_columns(leases),
    )
    parked = {leases[row.ordinal - 1] for row in suspended if row.parked}
    return await answers(
        conn,
        leases,
        [row.ordinal for row in suspended],
        done=lambda lease: MovedToSuspended(
            execution_id=lease.execution_id, parked=lease in parked
        ),
        done_before=_done_before,
    )


def _done_before(lease: Lease, seen: SeenExecution) -> MovedToSuspended | None:
    if seen.was_ended_by(lease) and seen.lifecycle_phase == LifecyclePhase.SUSPENDED:
        return MovedToSuspended(execution_id=lease.execution_id, repeated=True)
    return None
