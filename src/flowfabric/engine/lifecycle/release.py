"""active → runnable: the holder gives up the lease; neither a retry nor a loss is counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.fence import AppliedCall, answers, held_leases, holding
from flowfabric.engine.lifecycle.sql.requeue import requeue
from flowfabric.errors import Refusal
from flowfabric.ids import ExecutionId

RELEASE: Final[LiteralString] = (
    """
-- lifecycle.release
"""
    + held_leases()
    + holding()
    + requeue(
        "holding",
        attempt_outcome="'lease_revoked'",
        lease_reason="'released'",
        by_holder=True,
    )
    + """
SELECT ordinal FROM requeued
"""
)


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """The execution is claimable again at once, by any worker."""

    execution_id: ExecutionId


async def release(conn: Connection, leases: Sequence[Lease]) -> list[Released | Refusal]:
    """Requeue every execution whose lease is still held, in the order given.

    The same attempt goes on with the next claim; neither retries nor reclaims are counted.
    """
    requeued = await fetch_all(conn, RELEASE, AppliedCall, **fence_columns(leases))
    return await answers(conn, leases, [row.ordinal for row in requeued], done=_done)


def _done(lease: Lease) -> Released:
    return Released(execution_id=lease.execution_id)
