"""Which executions that name a budget run, and how many wait for a worker."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.budgets import budget_id as id_of
from flowfabric.db.rows import Connection, fetch_all, fetch_one
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.pages import check_limit

# An index has what waits and names a budget; at most so much of it is looked at.
COUNT_WAITING: Final[LiteralString] = """
-- budgets.read_attached: what waits
SELECT count(*)::integer AS found
  FROM (SELECT FROM ff.ready r
         WHERE r.budget_ids IS NOT NULL AND r.budget_ids @> ARRAY[%(budget_id)s::uuid]
         LIMIT %(most)s) AS counted
"""
# There are few leases: one for each handler that runs.
LIST_RUNNING: Final[LiteralString] = """
-- budgets.read_attached: what runs
SELECT l.partition_key, l.execution_id, r.namespace, r.lane_id, r.execution_kind,
       l.worker_instance_id, l.attempt_started_at_ms, (count(*) OVER ())::integer AS found
  FROM ff.lease l JOIN ff.exec_core e USING (partition_key, execution_id)
  JOIN ff.route r USING (route_id)
 WHERE e.budget_ids @> ARRAY[%(budget_id)s::uuid]
 ORDER BY l.attempt_started_at_ms, l.execution_id LIMIT %(limit)s
"""
COUNTED: Final = 10_000


class AttachedExecution(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that runs and names the budget."""

    execution_id: ExecutionId
    namespace: str
    lane_id: str
    execution_kind: str
    worker_instance_id: str
    attempt_started_at: datetime


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """What names a budget and has room: how many wait, counted up to 10,000, and what runs."""

    waiting: int
    running: int
    executions: list[AttachedExecution]
    """Of those that run, the longest first."""


class _Counted(msgspec.Struct, frozen=True):
    found: int


class _Running(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    namespace: str
    lane_id: str
    execution_kind: str
    worker_instance_id: str
    attempt_started_at_ms: int
    found: int


async def read_attached(conn: Connection, budget_id: UUID | str, *, limit: int = 20) -> Attached:
    """What has room under the budget; of what runs at most `limit` (1000) executions.

    What it holds back is `list_held_back`. Raises `ValidationError(invalid_input)`.
    """
    check_limit(limit)
    wanted = id_of(budget_id)
    waiting = await fetch_one(conn, COUNT_WAITING, _Counted, budget_id=wanted, most=COUNTED)
    running = await fetch_all(conn, LIST_RUNNING, _Running, budget_id=wanted, limit=limit)
    return Attached(
        waiting=waiting.found,
        running=running[0].found if running else 0,
        executions=[
            AttachedExecution(
                execution_id=ExecutionId(row.partition_key, row.execution_id),
                namespace=row.namespace,
                lane_id=row.lane_id,
                execution_kind=row.execution_kind,
                worker_instance_id=row.worker_instance_id,
                attempt_started_at=instant(row.attempt_started_at_ms),
            )
            for row in running
        ],
    )
