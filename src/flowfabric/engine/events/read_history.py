"""The history of one execution: its lease, completion and operator events, by time."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal, LiteralString, TypeAlias, cast

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.events.outbox import decoded_details
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant

READ_HISTORY: Final[LiteralString] = """
-- events.read_history
SELECT occurred_at_ms, 'lease' AS outbox, event_type AS what, reason, worker_instance_id AS by,
       attempt_index, lease_epoch, NULL::jsonb AS details, 1 AS rank, event_id
  FROM ff.lease_event
 WHERE execution_id = %(execution_id)s AND partition_key = %(partition_key)s
 UNION ALL
SELECT occurred_at_ms, 'completion', outcome, NULL, NULL, NULL, NULL, NULL, 2, event_id
  FROM ff.completion_event
 WHERE execution_id = %(execution_id)s AND partition_key = %(partition_key)s
 UNION ALL
SELECT occurred_at_ms, 'operator', event_type, reason, actor, NULL, NULL, details, 3, event_id
  FROM ff.operator_event
 WHERE execution_id = %(execution_id)s AND partition_key = %(partition_key)s
 ORDER BY occurred_at_ms, rank, event_id
"""

OutboxName: TypeAlias = Literal["lease", "completion", "operator"]


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One event of an execution.

    `what` is the type of a lease or operator event, or the outcome of a completion. `by` is the
    worker process that held the lease, or the operator. A field that an outbox lacks is None.
    """

    at: datetime
    outbox: OutboxName
    what: str
    reason: str | None
    by: str | None
    attempt_index: int | None
    lease_epoch: int | None
    details: dict[str, Any]


class _Row(msgspec.Struct, frozen=True):
    occurred_at_ms: int
    outbox: str
    what: str
    reason: str | None
    by: str | None
    attempt_index: int | None
    lease_epoch: int | None
    details: str | None
    rank: int
    event_id: int


async def read_history(conn: Connection, execution_id: ExecutionId) -> list[HistoryEntry]:
    """Every event of the execution, the oldest first; empty if there are none.

    Events of the same millisecond are in the order in which a transaction writes them: lease,
    completion, operator.
    """
    rows = await fetch_all(
        conn,
        READ_HISTORY,
        _Row,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )
    return [
        HistoryEntry(
            at=instant(row.occurred_at_ms),
            outbox=cast(OutboxName, row.outbox),
            what=row.what,
            reason=row.reason,
            by=row.by,
            attempt_index=row.attempt_index,
            lease_epoch=row.lease_epoch,
            details={} if row.details is None else decoded_details(row.details),
        )
        for row in rows
    ]
