"""any non-terminal → terminal(expired): executions past their deadline end."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all, fetch_one
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.ids import ExecutionId, id_columns
from flowfabric.states import FailureClass, TerminalOutcome

PAST_DEADLINE: Final[LiteralString] = """
-- lifecycle.past_deadline
SELECT coalesce(min(open_deadline_at_ms) <= ff.now_ms(), false) AS any FROM ff.exec_core
"""

FIND_PAST_DEADLINE: Final[LiteralString] = """
-- lifecycle.expire_executions: those past their deadline, the longest overdue first
SELECT partition_key, execution_id FROM ff.exec_core
 WHERE open_deadline_at_ms <= ff.now_ms()
 ORDER BY open_deadline_at_ms LIMIT %(limit)s
"""

STILL_PAST_DEADLINE: Final[LiteralString] = """
-- lifecycle.expire_executions: those that are still past it, under their locks
SELECT e.partition_key, e.execution_id
  FROM ff.exec_core e
  JOIN unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS named (partition_key, execution_id) USING (partition_key, execution_id)
 WHERE e.open_deadline_at_ms <= ff.now_ms()
"""


class _Any(msgspec.Struct, frozen=True):
    any: bool


class _Found(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID

    @property
    def id(self) -> ExecutionId:
        return ExecutionId(self.partition_key, self.execution_id)


async def past_deadline(conn: Connection) -> bool:
    """Is there an execution whose deadline has passed and that has not ended?"""
    return (await fetch_one(conn, PAST_DEADLINE, _Any)).any


async def expire_executions(conn: Connection, limit: int) -> int:
    """End at most `limit` executions whose deadline has passed, whatever their state.

    Executions that another transaction has locked are passed over. Needs a transaction.
    """
    found = await fetch_all(conn, FIND_PAST_DEADLINE, _Found, limit=limit)
    if not found:
        return 0
    locked = await lock_executions(conn, [row.id for row in found], pass_over_locked=True)
    due = await fetch_all(conn, STILL_PAST_DEADLINE, _Found, **id_columns(locked))
    ended = await terminalize(
        conn,
        [row.id for row in due],
        outcome=TerminalOutcome.EXPIRED,
        reason="execution_deadline",
        category=FailureClass.TIMEOUT.value,
    )
    return len(ended)
