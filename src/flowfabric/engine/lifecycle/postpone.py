"""active → runnable(delayed): executions are taken away from their holders for a while."""

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

POSTPONE: Final[LiteralString] = (
    """
-- lifecycle.postpone
"""
    + LOCKED_BY_ID
    + requeue(
        "seen",
        where="leased",
        until_ms="coalesce(%(until_ms)s::bigint, ff.now_ms() + %(wait_ms)s::bigint)",
        waiting_for="'waiting_for_delay'",
        attempt_outcome="'interrupted'",
        lease_reason="'operator'",
    )
    + """
SELECT partition_key, execution_id, until_ms, worker_instance_id AS holder FROM requeued
"""
)


class _Postponed(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    until_ms: int
    holder: str | None


async def postpone(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    until_ms: int | None = None,
    wait_ms: int | None = None,
) -> dict[ExecutionId, int]:
    """Every lease that is held is void, and its execution delayed; until when, of each.

    The instant is `until_ms`, or `wait_ms` from now. The epoch of each is bumped, so that its
    holder's writes are refused; the attempt goes on later, and no loss is counted.
    """
    rows = await fetch_all(
        conn, POSTPONE, _Postponed, until_ms=until_ms, wait_ms=wait_ms, **id_columns(executions)
    )
    signal_holders(row.holder for row in rows)
    return {ExecutionId(row.partition_key, row.execution_id): row.until_ms for row in rows}
