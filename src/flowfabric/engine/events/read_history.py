"""The history of one execution: its submit, then its events, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, Literal, LiteralString, TypeAlias, cast

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.events.lease_events import lease_word
from flowfabric.engine.events.outbox import decoded_details
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import OperatorEventType

READ_HISTORY: Final[LiteralString] = """
-- events.read_history
SELECT l.occurred_at_ms, 'lease' AS outbox, l.event_type AS what, l.reason,
       l.worker_instance_id AS by, l.attempt_index, l.lease_epoch,
       CASE WHEN a.failure_reason IS NOT NULL
            THEN jsonb_build_object('error', a.failure_reason, 'category', a.failure_category) END
           AS details,
       l.event_id
  FROM ff.lease_event l
  LEFT JOIN ff.attempt a      -- the attempt that ended under this lease
    ON (a.partition_key, a.execution_id, a.attempt_index, a.lease_epoch)
     = (l.partition_key, l.execution_id, l.attempt_index, l.lease_epoch)
   AND l.event_type IN ('revoked', 'expired')
 WHERE l.execution_id = %(execution_id)s AND l.partition_key = %(partition_key)s
 UNION ALL
SELECT created_at_ms, 'execution', 'submitted', NULL, creator_identity, NULL, NULL,
       jsonb_strip_nulls(jsonb_build_object(
           'idempotency_key', idempotency_key, 'member_name', member_name)), 0
  FROM ff.exec_body
 WHERE execution_id = %(execution_id)s AND partition_key = %(partition_key)s
 UNION ALL
SELECT occurred_at_ms, 'completion', outcome, NULL, NULL, NULL, NULL, NULL, event_id
  FROM ff.completion_event
 WHERE execution_id = %(execution_id)s AND partition_key = %(partition_key)s
 UNION ALL
SELECT occurred_at_ms, 'operator', event_type, reason, actor, NULL, lease_epoch, details, event_id
  FROM ff.operator_event
 WHERE execution_id = %(execution_id)s AND partition_key = %(partition_key)s
 ORDER BY event_id
"""

ENDING: Final = frozenset(
    {OperatorEventType.CANCELLED, OperatorEventType.COMPLETED, OperatorEventType.FAILED}
)
"""What an operator does that ends the execution."""

OutboxName: TypeAlias = Literal["execution", "lease", "completion", "operator"]


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One event of an execution; the first is its submit (`execution`, `submitted`).

    `what` is the type of a lease or operator event, or the outcome of a completion. A lease that
    its holder gave up itself is `released`, with the reason (`completed`, `retry`, …); `revoked` is
    one that was taken away. `by` is the client that submitted, the worker process that held the
    lease, or the operator. `details` of a lease under which an attempt failed have its `error`. A
    field that an event lacks is None.
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
    event_id: int


async def read_history(conn: Connection, execution_id: ExecutionId) -> list[HistoryEntry]:
    """Every event of the execution in the order in which it was written.

    Empty if there is no such execution, unless events of a deleted one are still there.

    The clock does not matter: it may have been set back in between.
    """
    rows = await fetch_all(
        conn,
        READ_HISTORY,
        _Row,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )
    entries = [
        HistoryEntry(
            at=instant(row.occurred_at_ms),
            outbox=cast(OutboxName, row.outbox),
            what=_what(row),
            reason=row.reason,
            by=row.by,
            attempt_index=row.attempt_index,
            lease_epoch=row.lease_epoch if row.outbox == "lease" else None,
            details={} if row.details is None else decoded_details(row.details),
        )
        for row in _in_order(rows)
    ]
    _add_replaced_errors(entries)
    return entries


def _add_replaced_errors(entries: list[HistoryEntry]) -> None:
    """The attempt that a replay makes anew replaces the one that failed; the event has its error.

    The lease under which that attempt failed is the last one that ended before the replay.
    """
    ended: int | None = None
    for place, entry in enumerate(entries):
        if entry.outbox == "lease":
            ended = place if entry.what in ("released", "revoked", "expired") else None
        elif entry.outbox == "operator" and entry.what == OperatorEventType.REPLAYED:
            error = entry.details.get("old_failure_reason")
            if ended is not None and error and not entries[ended].details:
                entries[ended] = msgspec.structs.replace(entries[ended], details={"error": error})
            ended = None


def _what(row: _Row) -> str:
    return lease_word(row.what, row.reason) if row.outbox == "lease" else row.what


def _in_order(rows: Sequence[_Row]) -> Iterator[_Row]:
    """Merge the outboxes, each in the order of its ids, by what can follow what.

    An action of an operator follows the leases up to the epoch that it left behind. An execution
    ends once, after its leases, and an action that ends it is recorded after its completion; only a
    replay lets it go on.
    """
    yield from (row for row in rows if row.outbox == "execution")
    leases = deque(row for row in rows if row.outbox == "lease")
    completions = deque(row for row in rows if row.outbox == "completion")
    has_ended = False
    for action in (row for row in rows if row.outbox == "operator"):
        while leases and (leases[0].lease_epoch or 0) <= (action.lease_epoch or 0):
            yield leases.popleft()
        replays = action.what == OperatorEventType.REPLAYED
        if (replays or action.what in ENDING) and completions and not has_ended:
            yield completions.popleft()
            has_ended = True
        has_ended = has_ended and not replays
        yield action
    yield from leases
    yield from completions
