"""A process without a role asks whether it is needed, by a statement that is planned quickly."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one

# Whether a role is held, as reconcile.find_due decides it.
FIND_FREE_ROLE: Final[LiteralString] = """
-- reconcile.find_free_role
SELECT (SELECT count(*) FROM ff.sweeper s
         WHERE s.held_until_ms > ff.now_ms() AND s.worker_instance_id <> %(instance)s::text
           AND (s.session_pid IS NULL
                OR EXISTS (SELECT FROM pg_stat_get_activity(s.session_pid)))) < 2 AS is_free,
       (SELECT count(*) FROM ff.worker_registry) AS processes
"""


class FreeRole(msgspec.Struct, frozen=True):
    """Can the process sweep or stand by? How many worker processes has the fleet?"""

    is_free: bool
    processes: int


async def find_free_role(conn: Connection, instance: str) -> FreeRole:
    """Whether less than two other processes hold a role; nothing is changed."""
    return await fetch_one(conn, FIND_FREE_ROLE, FreeRole, instance=instance)
