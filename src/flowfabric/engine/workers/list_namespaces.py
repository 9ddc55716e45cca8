"""The namespaces that have executions or workers."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all

LIST_NAMESPACES: Final[LiteralString] = """
-- workers.list_namespaces
SELECT namespace FROM ff.route UNION SELECT namespace FROM ff.worker_registry
 ORDER BY namespace LIMIT 1000
"""


class _Row(msgspec.Struct, frozen=True):
    namespace: str


async def list_namespaces(conn: Connection) -> list[str]:
    """At most 1,000 namespaces, by name."""
    return [row.namespace for row in await fetch_all(conn, LIST_NAMESPACES, _Row)]
