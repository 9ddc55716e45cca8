"""active → runnable: executions are taken away from their holders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.signal_holders import signal_holders
from flowfabric.engine.lifecycle.sql.fence import LOCKED_BY_ID
from flowfabric.engine.lifecycle.sql.requeue import requeue
from flowfabric.ids import ExecutionId, id_columns

REVOKE: Final[LiteralString] = (
    """
-- lifecycle.revoke
"""
    + LOCKED_BY_ID
    + requeue(
        "seen",
        where="leased",
        attempt_outcome="'lease_revoked'",
        counts_as_lost="true",
        lease_reason="'operator'",
    )
    + """
SELECT partition_key, execution_id, worker_instance_id AS holder FROM requeued
"""
)


class _Requeued(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    holder: str | None


async def revoke(conn: Connection, executions: Sequence[ExecutionId]) -> set[ExecutionId]:
    """Every lease that is held is void, and its execution claimable; which executions.

    The epoch of each is bumped, so that its holder's writes are refused.
    """
    rows = await fetch_all(conn, REVOKE, _Requeued, **id_columns(executions))
    signal_holders(row.holder for row in rows)
    return {ExecutionId(row.partition_key, row.execution_id) for row in rows}
