"""How the newest leases of one worker process ended, with the attempts that they were for."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.events.lease_events import lease_word
from flowfabric.ids import ExecutionId, check_name, check_text
from flowfabric.instants import instant
from flowfabric.pages import check_limit
from flowfabric.states import AttemptOutcome, LeaseEventReason

LIST_ENDED_LEASES: Final[LiteralString] = """
-- events.list_ended_leases
WITH ended AS (       -- of a bounded part of the outbox, the newest first
    SELECT l.event_id, l.partition_key, l.execution_id, l.attempt_index, l.lease_id, l.event_type,
           l.reason, l.occurred_at_ms, r.execution_kind, r.lane_id
      FROM ff.lease_event l JOIN ff.route r USING (route_id)
     WHERE l.event_id > (SELECT coalesce(max(event_id), 0) FROM ff.lease_event) - %(looked_at)s
       AND l.worker_instance_id = %(instance)s AND l.event_type IN ('expired', 'revoked')
       AND (l.event_type = 'expired' OR coalesce(l.reason IN ('operator', 'disconnected'), false))
           = %(lost)s
       AND r.namespace = %(namespace)s
     ORDER BY l.event_id DESC LIMIT %(limit)s
)
SELECT ended.partition_key, ended.execution_id, ended.attempt_index, ended.event_type, ended.reason,
       ended.occurred_at_ms, ended.execution_kind, ended.lane_id, a.outcome, a.started_at_ms
  FROM ended LEFT JOIN ff.attempt a       -- none if a later lease went on with the attempt
    ON (a.partition_key, a.execution_id, a.attempt_index, a.lease_id)
     = (ended.partition_key, ended.execution_id, ended.attempt_index, ended.lease_id)
 ORDER BY ended.event_id DESC
"""
_LOOKED_AT: Final = 50_000


class EndedLease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that a process does not hold any more."""

    execution_id: ExecutionId
    execution_kind: str
    lane_id: str
    attempt_index: int
    ended_as: str
    """`released` by the process itself, `revoked` or `expired`."""
    reason: LeaseEventReason | None
    at: datetime
    outcome: AttemptOutcome | None
    """Of the attempt; None if another lease went on with it."""
    started_at: datetime | None


class _Row(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    attempt_index: int
    event_type: str
    reason: str | None
    occurred_at_ms: int
    execution_kind: str
    lane_id: str
    outcome: str | None
    started_at_ms: int | None


async def list_ended_leases(
    conn: Connection,
    worker_instance_id: str,
    *,
    namespace: str,
    lost: bool = False,
    limit: int = 50,
) -> list[EndedLease]:
    """At most `limit` (1000) leases of the process that have ended, the newest first.

    With `lost`, those that were taken from it: expired, revoked by an operator, or given up because
    it was disconnected; without, the others. The last 50,000 lease events are looked at. Raises
    `ValidationError(invalid_input)` for an argument that cannot be.
    """
    check_text(worker_instance_id, field="worker_instance_id")
    check_name(namespace, field="namespace")
    check_limit(limit)
    rows = await fetch_all(
        conn,
        LIST_ENDED_LEASES,
        _Row,
        instance=worker_instance_id,
        namespace=namespace,
        lost=lost,
        looked_at=_LOOKED_AT,
        limit=limit,
    )
    return [
        EndedLease(
            execution_id=ExecutionId(row.partition_key, row.execution_id),
            execution_kind=row.execution_kind,
            lane_id=row.lane_id,
            attempt_index=row.attempt_index,
            ended_as=lease_word(row.event_type, row.reason),
            reason=None if row.reason is None else LeaseEventReason(row.reason),
            at=instant(row.occurred_at_ms),
            outcome=None if row.outcome is None else AttemptOutcome(row.outcome),
            started_at=instant(row.started_at_ms),
        )
        for row in rows
    ]
