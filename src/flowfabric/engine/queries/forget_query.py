"""A saved search is deleted."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.errors import NotFound

FORGET_QUERY: Final[LiteralString] = """
-- queries.forget_query
DELETE FROM ff.saved_query
 WHERE query_id = %(query_id)s AND namespace = %(namespace)s
   AND (%(owner)s::text IS NULL OR owner = %(owner)s)
RETURNING query_id
"""


class _Row(msgspec.Struct, frozen=True):
    query_id: UUID


async def forget_query(
    conn: Connection, query_id: UUID, *, owner: str | None = None, namespace: str = "default"
) -> None:
    """The search is gone: that of the owner, or of anybody. Raises `NotFound(query)`."""
    row = await fetch_maybe(
        conn, FORGET_QUERY, _Row, query_id=query_id, namespace=namespace, owner=owner
    )
    if row is None:
        raise NotFound("query", query_id)
