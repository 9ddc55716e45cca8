"""A process that stops leaves its role to another one at once."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, execute

RELEASE_ROLE: Final[LiteralString] = """
-- reconcile.release_role
DELETE FROM ff.sweeper WHERE worker_instance_id = %(instance)s
"""


async def release_role(conn: Connection, instance: str) -> None:
    """The process neither sweeps nor stands by; without a role nothing happens."""
    await execute(conn, RELEASE_ROLE, instance=instance)
