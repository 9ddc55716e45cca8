"""A search is saved by a name."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.errors import invalid_input
from flowfabric.ids import check_name, check_text, new_uuid
from flowfabric.instants import instant

MOST: Final = 200
"""Searches that one person may save in a namespace."""

SAVE_QUERY: Final[LiteralString] = """
-- queries.save_query
INSERT INTO ff.saved_query AS q (query_id, namespace, owner, shared, name, query, created_at_ms)
SELECT %(query_id)s, %(namespace)s, %(owner)s, %(shared)s, %(name)s, %(query)s, ff.now_ms()
 WHERE (SELECT count(*) FROM ff.saved_query
         WHERE namespace = %(namespace)s AND owner = %(owner)s AND name <> %(name)s) < %(most)s
    ON CONFLICT (namespace, owner, name) DO UPDATE
   SET query = EXCLUDED.query, shared = EXCLUDED.shared
RETURNING q.query_id, q.created_at_ms
"""


class SavedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A search that somebody saved."""

    query_id: UUID
    namespace: str
    owner: str
    shared: bool
    """May everybody who sees the namespace use it?"""
    name: str
    query: str
    """The parameters of the URL of the search."""
    created_at: datetime


class _Row(msgspec.Struct, frozen=True):
    query_id: UUID
    created_at_ms: int


async def save_query(
    conn: Connection,
    name: str,
    query: str,
    *,
    owner: str,
    namespace: str = "default",
    shared: bool = False,
) -> SavedQuery:
    """The search has this name; one that the owner had saved by it is replaced.

    Raises `ValidationError(invalid_input)` for texts that cannot be, and beyond 200 searches.
    """
    check_name(name, field="name")
    check_name(owner, field="owner")
    check_name(namespace, field="namespace")
    check_text(query, field="query", at_most=8192)
    row = await fetch_maybe(
        conn,
        SAVE_QUERY,
        _Row,
        query_id=new_uuid(),
        namespace=namespace,
        owner=owner,
        shared=shared,
        name=name,
        query=query,
        most=MOST,
    )
    if row is None:
        raise invalid_input("name", name, f"is beyond the {MOST} searches that may be saved")
    return SavedQuery(
        query_id=row.query_id,
        namespace=namespace,
        owner=owner,
        shared=shared,
        name=name,
        query=query,
        created_at=instant(row.created_at_ms),
    )
