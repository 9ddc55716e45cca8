"""Executions that wait for an operator, by kind and cause."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId, storable_text
from flowfabric.instants import instant
from flowfabric.states import DIVERGENCE

LIST_REVIEWS: Final[LiteralString] = """
-- suspensions.list_reviews
WITH found AS (
    SELECT r.namespace, r.lane_id, r.execution_kind, e.partition_key, e.execution_id,
           e.blocking_detail, coalesce(starts_with(e.blocking_detail, %(divergence)s), false)
               AS divergent, s.suspended_at_ms
      FROM ff.route r JOIN LATERAL (
            SELECT e.* FROM ff.exec_core e
             WHERE e.exceptional_state = 'suspended' AND e.route_id = r.route_id
             ORDER BY e.created_at_ms LIMIT %(most)s) AS e ON true
      JOIN ff.suspension_current s USING (partition_key, execution_id)
     WHERE s.reason_code = 'waiting_for_operator_review' AND s.closed_at_ms IS NULL
       AND (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s)
)
SELECT DISTINCT ON (namespace, execution_kind, divergent)
       namespace, execution_kind, divergent, partition_key, execution_id, blocking_detail,
       suspended_at_ms,
       (count(*) OVER (PARTITION BY namespace, execution_kind, divergent))::integer AS waiting
  FROM found
 ORDER BY namespace, execution_kind, divergent, suspended_at_ms
"""
_MOST: Final = 10_000


class ReviewGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Executions of one kind that an operator must let go on, replay or cancel."""

    namespace: str
    execution_kind: str
    divergent: bool
    """Their handlers made other calls than are recorded; else a timeout was escalated."""
    waiting: int
    since: datetime
    """Since when the first of them waits, which is the sample."""
    sample: ExecutionId
    detail: str | None


class _Row(msgspec.Struct, frozen=True):
    namespace: str
    execution_kind: str
    divergent: bool
    partition_key: int
    execution_id: UUID
    blocking_detail: str | None
    suspended_at_ms: int
    waiting: int


async def list_reviews(conn: Connection, *, namespace: str | None = None) -> list[ReviewGroup]:
    """What waits for an operator, of one namespace or of all; at most 10,000 of a route count."""
    if namespace is not None:
        storable_text(namespace, field="namespace")
    rows = await fetch_all(
        conn, LIST_REVIEWS, _Row, namespace=namespace, divergence=DIVERGENCE, most=_MOST
    )
    return [
        ReviewGroup(
            namespace=row.namespace,
            execution_kind=row.execution_kind,
            divergent=row.divergent,
            waiting=row.waiting,
            since=instant(row.suspended_at_ms),
            sample=ExecutionId(row.partition_key, row.execution_id),
            detail=row.blocking_detail,
        )
        for row in rows
    ]
