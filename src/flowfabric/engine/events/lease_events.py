"""The outbox of leases: one event for each lease that was acquired, renewed or ended."""

from __future__ import annotations

from typing import Final, Literal, LiteralString, TypeAlias
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all, fetch_one
from flowfabric.engine.events.cursor import encode_cursor
from flowfabric.engine.events.outbox import Entry, Event, Newest, Outbox, decoded_tags, entries
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import LeaseEventReason, LeaseEventType

READ: Final[LiteralString] = """
-- events.read_lease_history
SELECT l.event_id, l.partition_key, l.execution_id, l.event_type, l.lease_id, l.lease_epoch,
       l.attempt_index, l.worker_instance_id, l.reason, r.namespace, r.lane_id, l.tags,
       l.occurred_at_ms
  FROM ff.lease_event l LEFT JOIN ff.route r USING (route_id)
 WHERE l.event_id > %(after)s AND l.event_id <= %(upto)s
 ORDER BY l.event_id LIMIT %(limit)s
"""

NEWEST: Final[LiteralString] = """
-- events.newest_lease_event
SELECT coalesce(max(event_id), 0) AS event_id FROM ff.lease_event
"""

TAKEN_AWAY: Final = frozenset({LeaseEventReason.CANCELLED, LeaseEventReason.OPERATOR})
"""Why a lease ended against the will of its holder; for any other reason the holder released it."""

RevokedBy: TypeAlias = Literal["operator", "reconciler", "backend", "worker"]


class LeaseEvent(Event, frozen=True, kw_only=True):
    """A lease was acquired, renewed or ended.

    `worker_instance_id` is the holder: the new one of a lease that was acquired or reclaimed, the
    last one of a lease that expired or was revoked.
    """

    kind: LeaseEventType
    execution_id: ExecutionId
    lease_id: UUID
    lease_epoch: int
    attempt_index: int
    worker_instance_id: str
    reason: LeaseEventReason | None
    revoked_by: RevokedBy | None
    """Which part of the system ended the lease; None if the event does not end it."""
    lane_id: str | None


class _Row(msgspec.Struct, frozen=True):
    event_id: int
    partition_key: int
    execution_id: UUID
    event_type: str
    lease_id: UUID
    lease_epoch: int
    attempt_index: int
    worker_instance_id: str
    reason: str | None
    namespace: str | None
    lane_id: str | None
    tags: str | None
    occurred_at_ms: int


async def read_lease_history(
    conn: Connection, after: int, upto: int, limit: int
) -> list[Entry[LeaseEvent]]:
    """The first `limit` rows with after < event_id <= upto that are visible now."""
    rows = await fetch_all(conn, READ, _Row, after=after, upto=upto, limit=limit)
    return entries(rows, _event, outbox=LEASES.name)


async def newest_lease_event(conn: Connection) -> int:
    """The highest id that is visible now; 0 if there is none."""
    return (await fetch_one(conn, NEWEST, Newest)).event_id


def lease_word(kind: str, reason: str | None) -> str:
    """The kind of a lease event, but `released` for a lease that its holder gave up itself."""
    is_release = kind == LeaseEventType.REVOKED and reason not in TAKEN_AWAY
    return "released" if is_release else kind


def revoked_by(kind: LeaseEventType, reason: LeaseEventReason | None) -> RevokedBy | None:
    """Which part of the system ended the lease of such an event."""
    if kind not in (LeaseEventType.EXPIRED, LeaseEventType.REVOKED):
        return None
    if reason is LeaseEventReason.OPERATOR:
        return "operator"
    if reason is LeaseEventReason.CANCELLED:
        return "backend"
    return "reconciler" if kind is LeaseEventType.EXPIRED else "worker"


def _event(row: _Row) -> LeaseEvent:
    kind = LeaseEventType(row.event_type)
    reason = None if row.reason is None else LeaseEventReason(row.reason)
    return LeaseEvent(
        cursor=encode_cursor(row.event_id),
        event_id=row.event_id,
        kind=kind,
        execution_id=ExecutionId(row.partition_key, row.execution_id),
        lease_id=row.lease_id,
        lease_epoch=row.lease_epoch,
        attempt_index=row.attempt_index,
        worker_instance_id=row.worker_instance_id,
        reason=reason,
        revoked_by=revoked_by(kind, reason),
        namespace=row.namespace,
        lane_id=row.lane_id,
        tags=decoded_tags(row.tags),
        at=instant(row.occurred_at_ms),
    )


# A statement that ends an execution wakes only `completion`, and writes its lease event too.
# A claim does not wait for its flush.
LEASES: Final = Outbox(
    name="lease",
    topics=("lease", "completion"),
    hides_disconnects=False,
    is_flushed_later=True,
    read=read_lease_history,
    newest=newest_lease_event,
)
