"""The suspended executions of one partition, page by page, the longest suspended first."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, PartitionKey
from flowfabric.instants import instant
from flowfabric.pages import FIRST_ID, cursor_after, page_size, read_instant_cursor
from flowfabric.states import SuspensionReason, TimeoutBehavior

LIST_SUSPENDED: Final[LiteralString] = """
-- suspensions.list_suspended
SELECT execution_id, suspension_id, suspended_at_ms, reason_code, timeout_at_ms, timeout_behavior
  FROM ff.suspension_current
 WHERE partition_key = %(partition_key)s AND closed_at_ms IS NULL
   AND (suspended_at_ms, execution_id) > (%(after_ms)s::bigint, %(after_id)s::uuid)
 ORDER BY suspended_at_ms, execution_id LIMIT %(limit)s
"""


class SuspendedExecution(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that is suspended since `suspended_at`, and what it waits for."""

    execution_id: ExecutionId
    suspension_id: UUID
    suspended_at: datetime
    reason: SuspensionReason
    timeout_at: datetime | None
    timeout_behavior: TimeoutBehavior


class SuspendedPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some suspended executions, and the cursor for the next page if there is one."""

    executions: list[SuspendedExecution]
    next_cursor: str | None


class _Row(msgspec.Struct, frozen=True):
    execution_id: UUID
    suspension_id: UUID
    suspended_at_ms: int
    reason_code: str
    timeout_at_ms: int | None
    timeout_behavior: str


async def list_suspended(
    conn: Connection, partition: PartitionKey, *, cursor: str | None = None, limit: int = 100
) -> SuspendedPage:
    """At most `limit` (1000) suspended executions of one partition, from `cursor` on.

    Raises `ValidationError(invalid_input)` for a cursor that no page has.
    """
    if partition.family != "fp":
        raise invalid_input("partition_key", str(partition), "holds no executions")
    after_ms, after_id = (
        (-1, FIRST_ID) if cursor is None else read_instant_cursor(cursor, page_of="suspensions")
    )
    size = page_size(limit)
    if size == 0:
        return SuspendedPage(executions=[], next_cursor=None)
    rows = await fetch_all(
        conn,
        LIST_SUSPENDED,
        _Row,
        partition_key=partition.index,
        after_ms=after_ms,
        after_id=after_id,
        limit=size + 1,
    )
    return SuspendedPage(
        executions=[_suspended(partition.index, row) for row in rows[:size]],
        next_cursor=cursor_after(rows, size, lambda row: (row.suspended_at_ms, row.execution_id)),
    )


def _suspended(partition_key: int, row: _Row) -> SuspendedExecution:
    return SuspendedExecution(
        execution_id=ExecutionId(partition_key, row.execution_id),
        suspension_id=row.suspension_id,
        suspended_at=instant(row.suspended_at_ms),
        reason=SuspensionReason(row.reason_code),
        timeout_at=instant(row.timeout_at_ms),
        timeout_behavior=TimeoutBehavior(row.timeout_behavior),
    )
