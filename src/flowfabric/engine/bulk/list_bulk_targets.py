"""What became of each execution of a change of many."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId
from flowfabric.pages import check_limit

LIST_BULK_TARGETS: Final[LiteralString] = """
-- bulk.list_bulk_targets
SELECT b.batch_no, place.place, place.execution_id, place.result
  FROM ff.bulk_batch b
 CROSS JOIN LATERAL unnest(b.execution_ids, b.results) WITH ORDINALITY
            AS place (execution_id, result, place)
 WHERE b.bulk_id = %(bulk_id)s
   AND (b.batch_no, place.place) > (%(after_batch)s::integer, %(after_place)s::bigint)
   AND (%(result)s::text IS NULL OR place.result = %(result)s)
 ORDER BY b.batch_no, place.place LIMIT %(limit)s
"""


class BulkTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a change of many."""

    execution_id: ExecutionId
    result: str | None
    """`changed`, `repeated`, the code of the error that refused it, or None: not yet."""


class BulkTargetPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some executions, in the order in which they are changed, and where the next page begins."""

    targets: list[BulkTarget]
    next_after: tuple[int, int] | None


class _Row(msgspec.Struct, frozen=True):
    batch_no: int
    place: int
    execution_id: str
    result: str | None


async def list_bulk_targets(
    conn: Connection,
    bulk_id: UUID,
    *,
    result: str | None = None,
    after: tuple[int, int] = (-1, 0),
    limit: int = 100,
) -> BulkTargetPage:
    """At most `limit` (1000) executions of the action, all or those with one result."""
    check_limit(limit)
    rows = await fetch_all(
        conn,
        LIST_BULK_TARGETS,
        _Row,
        bulk_id=bulk_id,
        result=result,
        after_batch=after[0],
        after_place=after[1],
        limit=limit + 1,
    )
    page = rows[:limit]
    return BulkTargetPage(
        targets=[
            BulkTarget(execution_id=ExecutionId.parse(row.execution_id), result=row.result)
            for row in page
        ],
        next_after=(page[-1].batch_no, page[-1].place) if len(rows) > limit else None,
    )
