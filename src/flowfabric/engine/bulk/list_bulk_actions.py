"""The changes of many executions, newest first."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.bulk.read_bulk_action import COLUMNS, BulkAction, BulkRow, bulk_action
from flowfabric.pages import check_limit

LIST_BULK_ACTIONS: Final[LiteralString] = f"""
-- bulk.list_bulk_actions
SELECT {COLUMNS} FROM ff.bulk_action
 WHERE (%(namespace)s::text IS NULL OR namespace = %(namespace)s)
 ORDER BY bulk_id DESC LIMIT %(limit)s
"""


async def list_bulk_actions(
    conn: Connection, *, namespace: str | None = None, limit: int = 100
) -> list[BulkAction]:
    """The newest `limit` (1000) actions, of one namespace or of all; they are kept 30 days."""
    check_limit(limit)
    rows = await fetch_all(conn, LIST_BULK_ACTIONS, BulkRow, namespace=namespace, limit=limit)
    return [bulk_action(row) for row in rows]
