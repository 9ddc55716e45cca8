"""The searches that somebody may use: the own ones, and those that are shared."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.queries.save_query import SavedQuery
from flowfabric.instants import instant

LIST_QUERIES: Final[LiteralString] = """
-- queries.list_queries
SELECT query_id, namespace, owner, shared, name, query, created_at_ms FROM ff.saved_query
 WHERE namespace = %(namespace)s AND (shared OR owner = %(owner)s)
 ORDER BY name, owner LIMIT 1000
"""


class _Row(msgspec.Struct, frozen=True):
    query_id: UUID
    namespace: str
    owner: str
    shared: bool
    name: str
    query: str
    created_at_ms: int


async def list_queries(
    conn: Connection, *, owner: str, namespace: str = "default"
) -> list[SavedQuery]:
    """At most 1,000 searches of the namespace, by name."""
    rows = await fetch_all(conn, LIST_QUERIES, _Row, namespace=namespace, owner=owner)
    return [
        SavedQuery(
            query_id=row.query_id,
            namespace=row.namespace,
            owner=row.owner,
            shared=row.shared,
            name=row.name,
            query=row.query,
            created_at=instant(row.created_at_ms),
        )
        for row in rows
    ]
